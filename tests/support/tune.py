"""The task that whole runs of `tune` share, and shapes to tune for."""

from __future__ import annotations

import numpy as np

from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape

N = 4400
#: One graph, so that a run takes seconds; codes are left open.
GRAPH = ("-R", "12", "-L", "30", "--alpha", "1.2")


def shape_of(p: Parameters, dim: int, n: int = N) -> GraphShape:
    """The shape of float vectors, by default of so few that a build measures no formats."""
    return GraphShape(n, dim, np.dtype(np.float32), 0.0, p)
