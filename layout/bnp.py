"""Block neighbour padding, Starling's first layout (SIGMOD 2024, section 4.2): a vertex and its neighbours fill a page.

Vertices are taken by number. One that has no page yet goes to the page that is being filled, and after it its
neighbours that have none, nearest first, until that page is full.

Deviation: where the neighbours do not fill a page the next vertex does, so that the map is a bijection on [0, n) and
addressing stays arithmetic. A star (`layout.star`) begins with the vertex that has most neighbours to bring; here it
is any, which is cheaper, and leaves later ones with fewer.

Time O(n R) at most, one thread; memory 5 bytes a vertex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.layout.order import Adjacency, Work


@dataclass(frozen=True)
class BnpOrder:
    """Block neighbour padding."""

    def fit(
        self, graph: Adjacency, points: NDArray[Any] | None, nodes_per_page: int, seed: int,
        *, threads: int = 1, work: Work | None = None,
    ) -> NDArray[np.uint32]:  # fmt: skip
        """See `layout.order.Order`. Not interrupted: it spends one unit an edge and never more."""
        if work is not None:
            work.spend(int(graph.degrees.sum(dtype=np.int64)))
        order: NDArray[np.uint32] = _pad(graph.neighbours, graph.degrees, nodes_per_page)
        return order


@njit(nogil=True, cache=True)
def _pad(neighbours: Any, degrees: Any, b: int) -> Any:  # pragma: no cover - compiled
    n = degrees.size
    order, placed, filled = np.empty(n, np.uint32), np.zeros(n, np.bool_), 0
    for v in range(n):
        if placed[v]:
            continue
        placed[v] = True
        order[filled] = v
        filled += 1
        for j in range(degrees[v]):
            if filled % b == 0:
                break
            u = neighbours[v, j]
            if not placed[u]:
                placed[u] = True
                order[filled] = u
                filled += 1
    return order
