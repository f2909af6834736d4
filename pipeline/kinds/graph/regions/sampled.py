"""A sample of an input, by which a plan foretells the regions of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import comparable
from indexmill.builders.partition.carve import first_leaders
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.draws import CUT, drawn_rows, generator
from indexmill.pipeline.kinds.common.metric import as_stored, usable
from indexmill.pipeline.kinds.common.preview import first_rows, is_small
from indexmill.pipeline.kinds.graph.regions.cut import SampledCells, sample_size
from indexmill.pipeline.kinds.graph.shape import GraphShape

#: Vectors of the sample, and their bytes, at most, unless leaders are so many that it takes more.
ROWS, _BYTES = 65_536, 32 << 20


def sampled_cells(source: VectorSource, shape: GraphShape) -> SampledCells | None:
    """Carve a sample of `source`, whose graph has a `shape`; None where it has too few usable ones."""
    p, least = shape.parameters, sample_size(shape.n, shape.fanouts)
    wanted = max(least, min(ROWS, _BYTES // shape.comparable_bytes))
    rows = usable(_rows(source, shape, wanted), p.metric)
    if _distinct(rows) < least:
        return None
    stored = as_stored(rows, p.metric)
    return SampledCells(stored if shape.is_taken else comparable(stored), shape.n, shape.fanouts)


def _rows(source: VectorSource, shape: GraphShape, wanted: int) -> NDArray[Any]:
    """Return up to `wanted` rows: of a small input, the leaders that the build will draw, and others anywhere."""
    seed = shape.parameters.seed
    if not is_small(source):
        return generator(seed, CUT).permutation(first_rows(source, wanted))
    leaders, _ = first_leaders(shape.n, shape.fanouts, seed)
    return source.read(np.concatenate([leaders, drawn_rows(seed, CUT, shape.n, wanted - len(leaders))]))


def _distinct(rows: NDArray[Any]) -> int:
    """Return how many different rows there are: a few vectors may stand for many."""
    return len(np.unique(np.ascontiguousarray(rows).view((np.void, rows[:1].nbytes))))
