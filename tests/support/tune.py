"""The task that whole runs of `tune` share, and shapes to tune for."""

from __future__ import annotations

import numpy as np

from indexmill.pipeline.kinds.graph.candidates import Format, open_formats
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.tune.graphs.space import Space, space_of, tried_formats

N = 4400
#: One graph, so that a run takes seconds; codes are left open.
GRAPH = ("-R", "12", "-L", "30", "--alpha", "1.2")
#: Parameters of a format.
FORMAT_NAMES = tuple(Format.__annotations__)


def shape_of(p: Parameters, dim: int, n: int = N) -> GraphShape:
    """The shape of float vectors, by default of so few that a build measures no formats."""
    return GraphShape(n, dim, np.dtype(np.float32), 0.0, p)


def plain_space(p: Parameters, dim: int) -> Space:
    """The space of few vectors, of which a build measures no formats."""
    shape = shape_of(p, dim)
    return space_of(shape, tried_formats(p, dim, open_formats(shape)))
