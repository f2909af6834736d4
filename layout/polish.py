"""Swap polish: vertices of different pages change places if that puts more near pairs on one page.

The value of an order is the sum, over all pages and all pairs of vertices on a page, of their closeness

    1 / (1 + (|u - v|^2 / (r_u r_v))^4),

where r_v is the distance from v to one of its near neighbours. This is a soft count of pairs whose distance is that of
near neighbours around them (the local scale of Zelnik-Manor and Perona's self-tuning spectral clustering, NeurIPS 2004,
with a kernel that is nearly a step). The same queries need both vertices of such a pair. Edges only select candidates:
a vertex may move to the pages of its neighbours, in exchange for any vertex there.

Two other objectives were worse (`docs/guides/layout.md`). The number of pages that hold a vector's nearest neighbours
can be reduced, but it falls less for queries that are not among the vectors. The overlap ratio may grow without saving
a page read.

Parallel and deterministic: a batch has one vertex from each of many pages. The best swap of each is found for the order
before the batch, on threads. Swaps are made in the order of falling gain, if neither page has changed in this batch.
The gain of a swap depends only on its two pages, so it is exact, and a vertex is examined again only after one of the
pages it examined has changed.

Time: O(n (R + c) b) distances in the first round (b nodes a page, c = `_PAIRS`), fewer in later rounds. Memory: 28
bytes a vertex besides the first order. Vectors may be a mapped file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.closeness import PageState, near_page, page_state
from indexmill.layout.kmeans_pages import KmeansPagesOrder
from indexmill.layout.order import Given, Order, OrderMemory, Work, need_points
from indexmill.reader.threads import BlockPool

#: Neighbours whose pages are examined for a vertex.
_LOOKS = 10
#: Most promising partners of a vertex, whose gains are computed in full.
_PAIRS = 10
#: A batch has a vertex from one in this number of pages, so that few swaps of a batch meet on a page.
_STRIDE = 4
#: Vertices of a task.
_BLOCK = 512
#: Least gain of a swap, so that rounding never leads to a loss.
_LEAST = 1e-6


@dataclass(frozen=True)
class PolishOrder(Order):
    """An order, improved by swaps.

    Attributes
    ----------
    start : Order
    rounds : int
        Most examinations of every vertex.
    least_gain : float
        A round that adds less than this share of the total is the last.
    """

    start: Order = field(default_factory=KmeansPagesOrder)
    rounds: int = 12
    least_gain: float = 0.002
    uses_points = True
    memory = OrderMemory(40)

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. Once work is spent, the swaps made so far remain."""
        graph, _, nodes_per_page, _, threads, work = given
        points = need_points(given.points, "polish")
        order = self.start.arrange(given)
        start = len(order) * (nodes_per_page + 1) * -(-points.shape[1] // 16)
        if nodes_per_page > 1 and work.left and work.spend(start):
            state = page_state(graph, points, order, nodes_per_page, threads)
            with BlockPool(threads) as pool:
                _polish(state, nodes_per_page, self.rounds, self.least_gain, pool, work)
        return order


def _polish(state: PageState, b: int, rounds: int, least_gain: float, pool: BlockPool, work: Work) -> None:
    """Swap until a limit is reached, changing ``state.order``."""
    n, cost = len(state.order), -(-state.points.shape[1] // 16)
    total, now = float(state.held.sum() / 2), 0
    for _ in range(rounds):
        gained = 0.0
        for phase in range(b * _STRIDE):
            slots = np.arange(phase // b, len(state.changed), _STRIDE, dtype=np.int64) * b + phase % b
            now += 1
            gain, distances = swap_batch(state, state.order[slots[slots < n]], b, now, pool)
            gained += gain
            if not work.spend(distances * cost):
                return
        total += gained
        if gained < least_gain * total:
            return


def swap_batch(
    state: PageState, vertices: NDArray[np.uint32], b: int, now: int, pool: BlockPool
) -> tuple[float, int]:
    """Make the best swaps of `vertices`; return their gain and the number of distances."""
    partners, gains = np.empty(len(vertices), np.int64), np.empty(len(vertices))

    def propose(first: int, last: int) -> int:
        part = slice(first, last)
        return int(_propose(state, vertices[part], b, now, partners[part], gains[part]))

    distances = sum(pool.run(propose, len(vertices), _BLOCK))
    ranked = np.argsort(-gains, kind="stable")
    ranked = ranked[partners[ranked] >= 0]
    gained, swaps = _swap(state, vertices[ranked], partners[ranked], gains[ranked], b, now)
    return gained, distances + 4 * b * swaps


@kernel
def _look(state: Any, v: int, b: int, pages: Any) -> Any:  # pragma: no cover - compiled
    """Write the pages of the nearest neighbours of `v`, except its own; return their number and if one changed."""
    home = np.int64(state.slots[v]) // b
    new, n_pages = state.changed[home] >= state.seen[v], 0
    for j in range(min(np.int64(state.degrees[v]), pages.size)):
        page = np.int64(state.slots[state.neighbours[v, j]]) // b
        known = page == home
        for i in range(n_pages):
            known = known or pages[i] == page
        if not known:
            pages[n_pages] = page
            n_pages += 1
            new = new or state.changed[page] >= state.seen[v]
    return n_pages, new


@kernel
def _propose(
    state: Any, vertices: Any, b: int, now: int, partners: Any, gains: Any
) -> Any:  # pragma: no cover - compiled
    """Find the best swap of each vertex: its partner, -1 for none, and the gain. Return the number of distances.

    Let s(u, P) be the closeness of u to the other vertices of page P. A swap of v on page A and u on page B gains
    s(v, B) + s(u, A) - 2 s(u, v) - s(v, A) - s(u, B). All terms except s(u, A) are known without distances from u, so
    only the pairs with the greatest sum of these terms are computed in full.
    """
    pages = np.empty(_LOOKS, np.int64)
    distances, near = np.empty(b, np.float32), np.empty(b)
    others, promises = np.empty(_PAIRS, np.int64), np.empty(_PAIRS)
    spent = 0
    for i in range(vertices.size):
        v = np.int64(vertices[i])
        partners[i], gains[i] = -1, _LEAST
        n_pages, new = _look(state, v, b, pages)
        if not new:
            continue
        state.seen[v] = now
        n_pairs = 0
        for page in pages[:n_pages]:
            size, total = near_page(state, v, page, b, distances, near)
            spent += size
            for j in range(size):
                u = np.int64(state.order[page * b + j])
                promise = total - 2 * near[j] - state.held[u] - state.held[v]
                if n_pairs < _PAIRS or promise > promises[n_pairs - 1]:
                    n_pairs = _insert(others, promises, n_pairs, u, promise)
        home = np.int64(state.slots[v]) // b
        for j in range(n_pairs):
            size, total = near_page(state, others[j], home, b, distances, near)
            spent += size
            if promises[j] + total > gains[i]:
                partners[i], gains[i] = others[j], promises[j] + total
    return spent


@kernel
def _insert(others: Any, promises: Any, n: int, u: int, promise: float) -> Any:  # pragma: no cover - compiled
    """Insert `u` among the `n` most promising partners; return their new number."""
    at = min(n, others.size - 1)
    while at > 0 and promises[at - 1] < promise:
        others[at], promises[at] = others[at - 1], promises[at - 1]
        at -= 1
    others[at], promises[at] = u, promise
    return min(n + 1, others.size)


@kernel
def _swap(
    state: Any, vertices: Any, partners: Any, gains: Any, b: int, now: int
) -> Any:  # pragma: no cover - compiled
    """Make the swaps, in order, whose pages no earlier swap of the batch changed; return their gain and number."""
    distances, near = np.empty(b, np.float32), np.empty(b)
    gained, swaps = 0.0, 0
    for i in range(vertices.size):
        v, u = np.int64(vertices[i]), np.int64(partners[i])
        here, there = np.int64(state.slots[v]) // b, np.int64(state.slots[u]) // b
        if state.changed[here] == now or state.changed[there] == now:
            continue
        state.changed[here] = state.changed[there] = now
        for w, page, sign in ((v, here, -1.0), (u, there, -1.0)):
            _add(state, w, page, b, sign, distances, near)
        slot = state.slots[v]
        state.slots[v], state.slots[u] = state.slots[u], slot
        state.order[slot], state.order[state.slots[v]] = u, v
        for w, page, sign in ((v, there, 1.0), (u, here, 1.0)):
            _add(state, w, page, b, sign, distances, near)
        gained += gains[i]
        swaps += 1
    return gained, swaps


@kernel
def _add(
    state: Any, v: int, page: int, b: int, sign: float, distances: Any, near: Any
) -> None:  # pragma: no cover - compiled
    """Add `v` to the closeness of a page's other vertices, or remove it; set the closeness of `v` to them."""
    size, total = near_page(state, v, page, b, distances, near)
    for j in range(size):
        state.held[state.order[page * b + j]] += sign * near[j]
    state.held[v] = total
