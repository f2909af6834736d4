"""Block neighbour padding, Starling's first layout (SIGMOD 2024, section 4.2): a vertex and its neighbours fill a page.

Vertices are processed by number. A vertex without a page goes to the current page, followed by its neighbours without a
page, nearest first, until the page is full.

Deviation: if the neighbours do not fill the page, the next vertex continues it, so that the map is a bijection on
[0, n) and addressing stays arithmetic. A star (`layout.star`) starts with the vertex that has most neighbours without a
page; here any vertex starts a page, which is cheaper, but leaves later vertices with fewer neighbours.

Time: at most O(n R), on one thread. Memory: 5 bytes a vertex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.order import Given, Order


@dataclass(frozen=True)
class BnpOrder(Order):
    """Block neighbour padding."""

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. It is never interrupted, and spends one unit an edge."""
        given.work.spend(int(given.graph.degrees.sum(dtype=np.int64)))
        order: NDArray[np.uint32] = _pad(*given.graph, given.nodes_per_page)
        return order


@kernel
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
