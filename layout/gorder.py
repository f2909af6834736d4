"""Gorder (Wei, Yu, Lu and Lin, SIGMOD 2016): the next vertex is the one most akin to those placed just before it.

The kinship of two vertices is the number of edges between them plus the number of their common in-neighbours. The order
is greedy (the paper's GO-PQ): the next vertex has the largest sum of kinship to the last `window` vertices placed. A
vertex that enters or leaves the window changes only the scores of its neighbours, its in-neighbours, and the neighbours
of its in-neighbours. Scores change by one, so there is a linked list of vertices for each score (the paper's unit
heap).

As in the paper, a vertex whose score falls moves to its list only when it reaches the top. Deviations: a vertex whose
score rises moves once for all changes made by one vertex, not for every unit; hubs are not left out, because neighbour
lists of a search graph are short; the first vertex has the most in-neighbours; and if no vertex is akin to the window,
the one that was akin last, or else the lowest, comes next.

Time: O(sum over v of degree(v)^2) = O(n R^2). Memory: 32 bytes a vertex and 4 an edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError
from indexmill.formats.kernel import kernel
from indexmill.layout.order import Given, Order, OrderMemory
from indexmill.layout.reverse import in_neighbours

#: The paper's window.
DEFAULT_WINDOW = 5
_NOBODY = -1
#: Columns of a vertex's state: its score, its list (at least the score), and its neighbours in the list.
_SCORE, _LIST, _NEXT, _BEFORE = 0, 1, 2, 3
#: List of a placed vertex: larger than any score.
_PLACED = np.int32(0x7FFFFFFF)


@dataclass(frozen=True)
class Gorder(Order):
    """Gorder, on one thread, because every step depends on all steps before.

    Attributes
    ----------
    window : int
        Number of vertices placed last that count.
    """

    window: int = DEFAULT_WINDOW
    memory = OrderMemory(36, 4)

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. Once work is spent, the remaining vertices follow in input order.

        Raises
        ------
        ConfigError
            If the graph has 2^31 vertices or more.
        """
        graph, work, n = given.graph, given.work, len(given.graph.degrees)
        if n >= _PLACED:
            raise ConfigError(
                f"order gorder: expected fewer than {_PLACED:,} vertices, got {n:,}; choose gorder-windowed"
            )
        work.spend(2 * int(graph.degrees.sum(dtype=np.int64)))
        starts, sources = in_neighbours(graph)
        order, spent = _place(graph.neighbours, graph.degrees, starts, sources, self.window, work.left)
        work.spend(spent)
        return order  # type: ignore[no-any-return]


@kernel
def _unlink(heads: Any, state: Any, v: Any) -> None:  # pragma: no cover - compiled
    after, before = state[v, _NEXT], state[v, _BEFORE]
    if before == _NOBODY:
        heads[state[v, _LIST]] = after
    else:
        state[before, _NEXT] = after
    if after != _NOBODY:
        state[after, _BEFORE] = before


@kernel
def _link(heads: Any, state: Any, v: Any) -> None:  # pragma: no cover - compiled
    """Insert `v` at the front of the list of its score."""
    score = state[v, _SCORE]
    first = heads[score]
    state[v, _LIST], state[v, _NEXT], state[v, _BEFORE] = score, first, _NOBODY
    if first != _NOBODY:
        state[first, _BEFORE] = v
    heads[score] = v


@kernel
def _leave(neighbours: Any, degrees: Any, starts: Any, sources: Any, state: Any, v: Any) -> Any:
    """Lower the scores of the vertices akin to `v`; return the edges followed."""  # pragma: no cover - compiled
    spent = degrees[v]
    for j in range(degrees[v]):
        state[neighbours[v, j], _SCORE] -= 1
    for e in range(starts[v], starts[v + 1]):
        w = np.int64(sources[e])
        state[w, _SCORE] -= 1
        spent += 1 + degrees[w]
        for j in range(degrees[w]):
            state[neighbours[w, j], _SCORE] -= 1
    return spent


@kernel
def _raise(state: Any, u: Any, risen: Any, m: Any) -> Any:  # pragma: no cover - compiled
    state[u, _SCORE] += 1
    if state[u, _SCORE] == state[u, _LIST] + 1:  # the first unit beyond its list
        risen[m] = u
        m += 1
    return m


@kernel
def _enter(neighbours: Any, degrees: Any, starts: Any, sources: Any, state: Any, risen: Any, v: Any) -> Any:
    """Raise the scores of the vertices akin to `v`; return how many rose beyond their list, and the edges followed."""
    m: Any = 0  # pragma: no cover - compiled
    spent = degrees[v]
    for j in range(degrees[v]):
        m = _raise(state, neighbours[v, j], risen, m)
    for e in range(starts[v], starts[v + 1]):
        w = np.int64(sources[e])
        m = _raise(state, w, risen, m)
        spent += 1 + degrees[w]
        for j in range(degrees[w]):
            m = _raise(state, neighbours[w, j], risen, m)
    return m, spent


@kernel
def _place(
    neighbours: Any, degrees: Any, starts: Any, sources: Any, window: int, limit: int
) -> Any:  # pragma: no cover - compiled
    """Return the order, and the number of edges followed, at most those of one vertex beyond `limit`."""
    n = degrees.size
    order = np.empty(n, np.uint32)
    state = np.zeros((n, 4), np.int32)
    heads = np.full(64, _NOBODY, np.int32)
    risen = np.empty(n, np.uint32)
    v: Any = 0
    most = -1
    for u in range(n - 1, -1, -1):
        _link(heads, state, u)
        if starts[u + 1] - starts[u] >= most:
            v, most = u, starts[u + 1] - starts[u]
    top: Any = 0
    filled, spent = 0, 0
    while True:
        _unlink(heads, state, v)
        state[v, _LIST] = _PLACED
        order[filled] = v
        filled += 1
        if filled == n or spent > limit:
            break
        if filled > window:
            spent += _leave(neighbours, degrees, starts, sources, state, order[filled - 1 - window])
        m, looks = _enter(neighbours, degrees, starts, sources, state, risen, v)
        spent += looks
        for i in range(m):
            score = state[risen[i], _SCORE]
            if score >= heads.size:
                heads = np.concatenate((heads, np.full(score, _NOBODY, np.int32)))
            _unlink(heads, state, np.int64(risen[i]))
            _link(heads, state, np.int64(risen[i]))
            top = max(top, score)
        while True:
            while heads[top] == _NOBODY:
                top -= 1
            v = np.int64(heads[top])
            if state[v, _SCORE] == top:
                break
            _unlink(heads, state, v)
            _link(heads, state, v)
    for u in range(n):
        if state[u, _LIST] != _PLACED:
            order[filled] = u
            filled += 1
    return order, spent
