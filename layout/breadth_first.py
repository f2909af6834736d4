"""Breadth-first order, the cheapest order that uses the graph.

The walk starts at the medoid, where searches of DiskANN start, and visits neighbours in the order of their list. The
lowest vertex that was not reached starts the next walk.

Time: O(n R). Memory: 5 bytes a vertex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError
from indexmill.formats.kernel import kernel
from indexmill.layout.order import Adjacency, Given, Order, Work


@dataclass(frozen=True)
class BreadthFirstOrder(Order):
    """Breadth-first from one vertex.

    Attributes
    ----------
    start : int, optional
        The first vertex. By default the one nearest to the mean of `points`, or without points the one with most
        in-neighbours; ties go to the lower number.
    """

    start: int | None = None
    uses_points = True

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. Once work is spent, the remaining vertices follow in input order.

        Raises
        ------
        ConfigError
            If `start` is not a vertex.
        """
        graph, work = given.graph, given.work
        n = len(graph.degrees)
        start = central_vertex(graph, given.points, work) if self.start is None else self.start
        if not 0 <= start < n:
            raise ConfigError(f"start: expected a vertex from 0 to {n - 1}, got {start}; name another")
        order, spent = _walk(graph.neighbours, graph.degrees, start, work.left)
        work.spend(spent)
        return order  # type: ignore[no-any-return]


def central_vertex(graph: Adjacency, points: NDArray[Any] | None, work: Work) -> int:
    """Return the vertex nearest to the mean of `points`, or without points the one with most in-neighbours."""
    if points is not None and work.spend(2 * points.shape[0] * -(-points.shape[1] // 16)):
        return int(_nearest_to_mean(points))
    work.spend(int(graph.degrees.sum(dtype=np.int64)))
    return int(in_degrees(graph.neighbours, graph.degrees).argmax())


@kernel
def _nearest_to_mean(points: Any) -> Any:  # pragma: no cover - compiled
    n, dim = points.shape
    mean = np.zeros(dim)
    for v in range(n):
        for j in range(dim):
            mean[j] += points[v, j]
    mean /= n
    best, least = 0, np.inf
    for v in range(n):
        distance = 0.0
        for j in range(dim):
            distance += (points[v, j] - mean[j]) ** 2
        if distance < least:
            best, least = v, distance
    return best


@kernel
def in_degrees(neighbours: Any, degrees: Any) -> Any:  # pragma: no cover - compiled
    """Return the number of in-neighbours of every vertex, uint32 (n,)."""
    counts = np.zeros(degrees.size, np.uint32)
    for v in range(degrees.size):
        for j in range(degrees[v]):
            counts[neighbours[v, j]] += 1
    return counts


@kernel
def _walk(neighbours: Any, degrees: Any, start: int, limit: int) -> Any:  # pragma: no cover - compiled
    """Return the order, which is its own queue, and the number of edges followed, at most `limit`."""
    n = degrees.size
    order = np.empty(n, np.uint32)
    seen = np.zeros(n, np.bool_)
    filled, taken, spent, lowest = 0, 0, 0, 0
    root = start
    while filled < n:
        order[filled] = root
        seen[root] = True
        filled += 1
        while taken < filled and spent + degrees[order[taken]] <= limit:
            v = np.int64(order[taken])
            taken += 1
            spent += degrees[v]
            for j in range(degrees[v]):
                u = neighbours[v, j]
                if not seen[u]:
                    seen[u] = True
                    order[filled] = u
                    filled += 1
        while lowest < n and seen[lowest]:
            lowest += 1
        root = lowest
    return order, spent
