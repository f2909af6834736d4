"""The vertices on each upper level of a hierarchical graph, drawn as HNSW draws them (arXiv 1603.09320, section 4.1).

The top level of a vertex is ``floor(-ln(u) / ln(M))``, with u uniform in (0, 1]: level l has about one vertex in M^l,
and each level is a subset of the level below it. Deviation: levels so high that a vertex reaches them less often than
`LEAST_SHARE` are left out, as faiss does.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.streams import LEVELS

#: Share of the vertices below which a level is not made.
LEAST_SHARE = 1e-9
#: Vertices drawn at a time.
_DRAWN = 1 << 20


def most_levels(m: int) -> int:
    """Return the most upper levels of a graph whose levels shrink by `m`."""
    return math.floor(-math.log(LEAST_SHARE) / math.log(m))


def draw_levels(n_vertices: int, m: int, seed: int) -> list[NDArray[np.uint32]]:
    """Draw the vertices of each upper level.

    Parameters
    ----------
    n_vertices : int
    m : int
        Neighbours of a vertex on an upper level, at least 2; a level has one vertex in `m` of the level below.
    seed : int

    Returns
    -------
    list of uint32 array
        Ascending vertices of level 1, level 2 and so on, each a subset of the one before; none of them is empty.
    """
    random = np.random.default_rng([seed, LEVELS])
    vertices: list[NDArray[np.uint32]] = []
    tops: list[NDArray[np.int64]] = []
    for first in range(0, n_vertices, _DRAWN):
        drawn = 1 - random.random(min(_DRAWN, n_vertices - first))
        top = (-np.log(drawn) / math.log(m)).astype(np.int64)
        upper = np.flatnonzero(top)
        vertices.append((first + upper).astype(np.uint32))
        tops.append(np.minimum(top[upper], most_levels(m)))
    drawn_vertices, top = np.concatenate(vertices), np.concatenate(tops)
    return [drawn_vertices[top >= level] for level in range(1, int(top.max(initial=0)) + 1)]
