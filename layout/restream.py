"""Restreaming (Nishimura and Ugander, KDD 2013) of vertices over pages, with Starling's block neighbour frequency.

A round empties the pages and streams the vertices. Each vertex chooses the page with most of its neighbours; a
neighbour not yet streamed counts on its page of the previous round. Linear deterministic greedy (LDG, Stanton and
Kliot, KDD 2012) multiplies that number by the free share of the page, which keeps room for vertices with more
neighbours there. Block neighbour frequency (BNF; Starling, SIGMOD 2024, section 4.2) has no such weights (`balance`
off): only the number of neighbours counts while a page has room. It starts from block neighbour padding (`layout.bnp`)
and counts only outgoing edges. A vertex whose neighbours' pages are all full gets a free place at the end of the round,
in the order of the previous round.

A round may reduce the number of edges within pages, so the best order is kept. Vertices are streamed in random order,
because in the order of slots, vertices of an early page would take the places of later pages. (Starling streams by
vertex number, and ends when the overlap ratio stops growing; here the number of rounds is fixed.)

Parallel and deterministic: a batch counts its neighbours' pages before the batch, on threads, then its vertices choose
one after the other. Time: O(n R) a round. Memory: 20 bytes a vertex besides the first order, and 4 bytes an edge if
edges count in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.order import Adjacency, Given, Order, OrderMemory, invert
from indexmill.layout.reverse import in_neighbours
from indexmill.layout.star import StarOrder
from indexmill.reader.threads import BlockPool

#: Separates this draw from others with the same seed.
STREAM = 0x5EA3
#: Vertices of a batch at most.
_BATCH = 4096
#: Vertices of a task.
_BLOCK = 512
#: Pages that a vertex chooses from: those with most neighbours.
_CHOICES = 8
_NO_PAGE = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True)
class RestreamOrder(Order):
    """An order, restreamed.

    Attributes
    ----------
    start : Order
    rounds : int
    balance : bool
        Weigh pages by LDG; otherwise only the number of neighbours counts.
    both_directions : bool
        Whether in-neighbours count as neighbours, too.
    """

    start: Order = field(default_factory=StarOrder)
    rounds: int = 8
    balance: bool = True
    both_directions: bool = True
    #: Least batches of a round.
    batches: ClassVar[int] = 64

    @property
    def memory(self) -> OrderMemory:
        """Memory of the order: in-neighbours, if they count, are 4 bytes an edge."""
        return OrderMemory(52, 4 * self.both_directions)

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. Once work is spent, the best round so far is the result."""
        graph, nodes_per_page, work = given.graph, given.nodes_per_page, given.work
        best = self.start.arrange(given)
        n, n_edges = len(best), int(graph.degrees.sum(dtype=np.int64))
        if nodes_per_page == 1 or n <= nodes_per_page:
            return best
        starts, sources = np.zeros(n + 1, np.int64), np.empty(0, np.uint32)
        if self.both_directions and work.left:
            work.spend(2 * n_edges)
            starts, sources = in_neighbours(graph)
        stream = np.random.default_rng([given.seed, STREAM]).permutation(n).astype(np.uint32)
        if not work.left:
            return best
        most, order = edges_within_pages(graph, best, nodes_per_page), best
        with BlockPool(given.threads) as pool:
            for _ in range(self.rounds):
                if not work.spend(2 * n_edges + len(sources)):
                    break
                order = self._round(graph, (starts, sources), stream, order, nodes_per_page, pool)
                within = edges_within_pages(graph, order, nodes_per_page)
                if within > most:
                    most, best = within, order
        return best

    def _round(
        self, graph: Adjacency, incoming: tuple[NDArray[np.int64], NDArray[np.uint32]], stream: NDArray[np.uint32],
        order: NDArray[np.uint32], b: int, pool: BlockPool,
    ) -> NDArray[np.uint32]:  # fmt: skip
        """Stream all vertices of `order` once; return the order of the pages they chose."""
        n, pages = (
            len(order),
            invert(order) // np.uint32(b),
        )  # the old page of each vertex, later its new page
        room = np.full(-(-n // b), b, np.int64)
        room[-1] = n - (len(room) - 1) * b
        size, homeless = room.copy(), np.zeros(n, np.bool_)
        most = min(_BATCH, -(-n // self.batches))
        choices, counts = np.empty((most, _CHOICES), np.uint32), np.empty((most, _CHOICES), np.int32)
        for at in range(0, n, most):
            batch = stream[at : at + most]

            def count(first: int, last: int) -> None:
                part = slice(first, last)
                _count(*graph, *incoming, pages, batch[part], choices[part], counts[part])  # noqa: B023

            pool.run(count, len(batch), _BLOCK)
            _choose(batch, choices, counts, size, room, self.balance, pages, homeless)
        _fill(order, room, pages, homeless)
        result: NDArray[np.uint32] = np.argsort(pages, kind="stable").astype(np.uint32)
        return result


def edges_within_pages(graph: Adjacency, order: NDArray[np.uint32], nodes_per_page: int) -> int:
    """Return the number of edges within pages, by which `RestreamOrder` compares rounds."""
    pages = invert(order) // np.uint32(nodes_per_page)
    return int(_edges_within(graph.neighbours, graph.degrees, pages))


@kernel
def _edges_within(neighbours: Any, degrees: Any, pages: Any) -> Any:  # pragma: no cover - compiled
    within = 0
    for v in range(degrees.size):
        for j in range(degrees[v]):
            within += pages[neighbours[v, j]] == pages[v]
    return within


@kernel
def _count(
    neighbours: Any,
    degrees: Any,
    starts: Any,
    sources: Any,
    pages: Any,
    vertices: Any,
    choices: Any,
    counts: Any,
) -> None:  # pragma: no cover - compiled
    """Write the pages with most neighbours of each vertex, ties by number, and their counts; `_NO_PAGE` for none."""
    for i in range(vertices.size):
        v = np.int64(vertices[i])
        out, n_in = np.int64(degrees[v]), starts[v + 1] - starts[v]
        around = np.empty(out + n_in, np.uint32)
        for j in range(out):
            around[j] = pages[neighbours[v, j]]
        for j in range(n_in):
            around[out + j] = pages[sources[starts[v] + j]]
        around.sort()
        choices[i], counts[i] = _NO_PAGE, 0
        first = 0
        for last in range(1, around.size + 1):
            if last == around.size or around[last] != around[first]:
                _rank(choices[i], counts[i], around[first], last - first)
                first = last


@kernel
def _rank(choices: Any, counts: Any, page: Any, count: int) -> None:  # pragma: no cover - compiled
    """Insert a page among the best ones; the last one is dropped."""
    at = choices.size - 1
    if counts[at] >= count:
        return
    while at > 0 and counts[at - 1] < count:
        choices[at], counts[at] = choices[at - 1], counts[at - 1]
        at -= 1
    choices[at], counts[at] = page, count


@kernel
def _choose(
    vertices: Any, choices: Any, counts: Any, size: Any, room: Any, balance: bool, pages: Any, homeless: Any
) -> None:  # pragma: no cover - compiled
    """Give each vertex its best page; a vertex without one is homeless, and keeps its old page until the round ends."""
    for i in range(vertices.size):
        v, best, most = vertices[i], np.int64(-1), 0.0
        for j in range(choices.shape[1]):
            if choices[i, j] == _NO_PAGE:
                break
            page = np.int64(choices[i, j])
            share = room[page] / size[page] if balance else np.float64(room[page] > 0)
            if counts[i, j] * share > most:
                best, most = page, counts[i, j] * share
        homeless[v] = best < 0
        if best >= 0:
            pages[v] = best
            room[best] -= 1


@kernel
def _fill(order: Any, room: Any, pages: Any, homeless: Any) -> None:  # pragma: no cover - compiled
    """Give the remaining places to homeless vertices, in their old order."""
    page = 0
    for v in order:
        if homeless[v]:
            while room[page] == 0:
                page += 1
            pages[v] = page
            room[page] -= 1
