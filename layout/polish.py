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

A swap moves vectors, too, in a copy of them by slot: a page is read from one place, not from one for each vertex.

Time: O(n (R + c) b) distances in the first round (b nodes a page, c = `_PAIRS`), fewer in later rounds. Memory: 28
bytes a vertex besides the first order. The copy of the vectors is scratch space, and they may be a mapped file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.closeness import PageState, add_page, measure, measured, page_state
from indexmill.layout.kmeans_pages import KmeansPagesOrder
from indexmill.layout.order import Given, Order, OrderMemory, Work, need_points
from indexmill.reader.threads import BlockPool, run_blocks

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
        points, b, work = need_points(given.points, "polish"), given.nodes_per_page, given.work
        order = self.start.arrange(given)
        if b == 1 or not work.left or not work.spend(len(order) * (b + 1) * -(-points.shape[1] // 16)):
            return order
        with given.scratch(points.dtype, points.shape) as rows:

            def copy(first: int, last: int) -> None:
                np.take(points, order[first:last], axis=0, out=rows[first:last], mode="clip")

            run_blocks(copy, len(order), _BLOCK, given.threads)
            state = page_state(given.graph, rows, order, b, given.threads)
            with BlockPool(given.threads) as pool:
                _polish(state, b, self.rounds, self.least_gain, pool, work)
        return order


def _polish(state: PageState, b: int, rounds: int, least_gain: float, pool: BlockPool, work: Work) -> None:
    """Swap until a limit is reached, changing ``state.order``."""
    n, cost = len(state.order), -(-state.rows.shape[1] // 16)
    total, now = float(state.held.sum() / 2), 0
    for _ in range(rounds):
        gained = 0.0
        for phase in range(b * _STRIDE):
            slots = np.arange(phase // b, len(state.changed), _STRIDE, dtype=np.int64) * b + phase % b
            now += 1
            gain, distances = swap_batch(state, slots[slots < n], b, now, pool)
            gained += gain
            if not work.spend(distances * cost):
                return
        total += gained
        if gained < least_gain * total:
            return


def swap_batch(
    state: PageState, slots: NDArray[np.int64], b: int, now: int, pool: BlockPool
) -> tuple[float, int]:
    """Make the best swaps of the vertices in `slots`; return their gain and the number of distances."""
    partners, gains = np.empty(len(slots), np.int64), np.empty(len(slots))

    def propose(first: int, last: int) -> int:
        part = slice(first, last)
        return int(_propose(state, slots[part], b, now, partners[part], gains[part]))

    distances = sum(pool.run(propose, len(slots), _BLOCK))
    ranked = np.argsort(-gains, kind="stable")
    ranked = ranked[partners[ranked] >= 0]
    gained, swaps = _swap_all(state, slots[ranked], partners[ranked], gains[ranked], b, now)
    return gained, distances + 4 * b * swaps


@kernel
def _propose(
    state: Any, slots: Any, b: int, now: int, partners: Any, gains: Any
) -> Any:  # pragma: no cover - compiled
    """Find the best swap of the vertex in each slot: the other slot, -1 for none, and the gain. Return the distances.

    Let s(u, P) be the closeness of u to the other vertices of page P. A swap of v on page A and u on page B gains
    s(v, B) + s(u, A) - 2 s(u, v) - s(v, A) - s(u, B). All terms except s(u, A) are known without distances from u, so
    only the pairs with the greatest sum of these terms are computed in full.
    """
    pages, seen, mine = np.empty(_LOOKS, np.int64), measured(_LOOKS * b), measured(b)
    others, promises = np.empty(_PAIRS, np.int64), np.empty(_PAIRS)
    spent = 0
    for i in range(slots.size):
        slot = slots[i]
        partners[i], gains[i] = -1, _LEAST
        n_pages, new = _look(state, slot, b, pages)
        if not new:
            continue
        state.seen[slot] = now
        m = 0
        for page in pages[:n_pages]:
            m = add_page(state, page, b, m, seen)
        measure(state, slot, m, seen)
        n_pairs, first = 0, 0
        while first < m:
            last: Any = first + min(b, state.order.size - np.int64(seen.slots[first]))
            total = seen.near[first:last].sum()
            for j in range(first, last):
                promise = total - 2 * seen.near[j] - state.held[seen.slots[j]] - state.held[slot]
                if n_pairs < _PAIRS or promise > promises[n_pairs - 1]:
                    n_pairs = _insert(others, promises, n_pairs, np.int64(seen.slots[j]), promise)
            first = last
        size = add_page(state, slot // b, b, 0, mine)
        for j in range(n_pairs):
            measure(state, others[j], size, mine)
            gain = promises[j] + mine.near[:size].sum()
            if gain > gains[i]:
                partners[i], gains[i] = others[j], gain
        spent += m + n_pairs * size
    return spent


@kernel
def _look(state: Any, slot: int, b: int, pages: Any) -> Any:  # pragma: no cover - compiled
    """Write the pages of a vertex's nearest neighbours, except its own; return their number and if one changed."""
    v, home = state.order[slot], slot // b
    new, n_pages = state.changed[home] >= state.seen[slot], 0
    for j in range(min(np.int64(state.degrees[v]), pages.size)):
        page = np.int64(state.slots[state.neighbours[v, j]]) // b
        known = page == home
        for i in range(n_pages):
            known = known or pages[i] == page
        if not known:
            pages[n_pages] = page
            n_pages += 1
            new = new or state.changed[page] >= state.seen[slot]
    return n_pages, new


@kernel
def _insert(
    others: Any, promises: Any, n: int, slot: int, promise: float
) -> Any:  # pragma: no cover - compiled
    """Insert `slot` among the `n` most promising ones; return their new number."""
    at = min(n, others.size - 1)
    while at > 0 and promises[at - 1] < promise:
        others[at], promises[at] = others[at - 1], promises[at - 1]
        at -= 1
    others[at], promises[at] = slot, promise
    return min(n + 1, others.size)


@kernel
def _swap_all(
    state: Any, slots: Any, partners: Any, gains: Any, b: int, now: int
) -> Any:  # pragma: no cover - compiled
    """Make the swaps, in order, whose pages no earlier swap of the batch changed; return their gain and number."""
    found, gained, swaps = measured(b), 0.0, 0
    for i in range(slots.size):
        one, other = slots[i], partners[i]
        if state.changed[one // b] == now or state.changed[other // b] == now:
            continue
        state.changed[one // b] = state.changed[other // b] = now
        for slot in (one, other):
            _add(state, slot, b, -1.0, found)
        _swap(state, one, other)
        for slot in (one, other):
            _add(state, slot, b, 1.0, found)
        gained += gains[i]
        swaps += 1
    return gained, swaps


@kernel
def _swap(state: Any, one: int, other: int) -> None:  # pragma: no cover - compiled
    """Exchange what two slots hold, except ``held``."""
    for j in range(state.rows.shape[1]):
        state.rows[one, j], state.rows[other, j] = state.rows[other, j], state.rows[one, j]
    state.order[one], state.order[other] = state.order[other], state.order[one]
    state.slots[state.order[one]], state.slots[state.order[other]] = one, other
    scale, seen = state.inverse_scales[one], state.seen[one]
    state.inverse_scales[one], state.seen[one] = state.inverse_scales[other], state.seen[other]
    state.inverse_scales[other], state.seen[other] = scale, seen


@kernel
def _add(state: Any, slot: int, b: int, sign: float, found: Any) -> None:  # pragma: no cover - compiled
    """Add the vertex in `slot` to the closeness of its page's others, or remove it; set its own closeness to them."""
    size = add_page(state, slot // b, b, 0, found)
    measure(state, slot, size, found)
    for j in range(size):
        state.held[found.slots[j]] += sign * found.near[j]
    state.held[slot] = found.near[:size].sum()
