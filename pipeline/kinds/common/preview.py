"""Rows of an input, by which a plan judges it before it is ingested."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.sources.source import VectorSource

#: Bytes of an input whose rows are read wherever they are.
WHOLE_BYTES = 1 << 30
#: Rows read at a time.
_ROWS = 16_384


def is_small(source: VectorSource) -> bool:
    """Whether rows of an input are soon read wherever they are."""
    return source.n_vectors * source.dim * source.dtype.itemsize <= WHOLE_BYTES


def first_rows(source: VectorSource, count: int) -> NDArray[Any]:
    """Return the first `count` vectors of `source` (1 or more), shape (count, dim), or all if it has fewer."""
    blocks, missing = [], count
    for batch in source.batches(min(count, _ROWS)):
        blocks.append(np.asarray(batch.vectors[:missing]))
        missing -= len(blocks[-1])
        if not missing:
            break
    return np.concatenate(blocks)
