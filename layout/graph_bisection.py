"""Recursive graph bisection (Dhulipala et al., KDD 2016; Lucene's BPIndexReorderer and BpVectorReorderer).

The vertices of a range of slots are divided between its two halves, then the vertices of each half, until halves are
pages. A division starts with the current order, at first breadth-first, and improves in rounds. The gain of a vertex is
the number of edges that its move to the other half would save. Vertices of both halves are paired by falling gain, and
swapped while that saves edges.

Deviations: the paper saves bits of compressed gaps. Here the gain is the number of edges, in either direction, to the
other half minus those to the own half, because an edge counts only if both of its ends are on one page. The paper swaps
all pairs by gains computed beforehand; here the gain of a pair is computed again just before, so that every swap saves
at least one edge and no round can undo another.

Time: O(n R log(n / b)) for each round, on threads. Memory: 34 bytes a vertex and 4 an edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.breadth_first import BreadthFirstOrder
from indexmill.layout.halving import Level, next_level, split_at
from indexmill.layout.order import Given, Order, OrderMemory, invert
from indexmill.layout.reverse import in_neighbours
from indexmill.reader.threads import run_blocks

#: Rounds of a level, as in the paper.
DEFAULT_ROUNDS = 20
#: Vertices of a task in a large range.
_BLOCK = 1 << 14
#: Tasks that the small ranges of a level are divided into.
_RUNS = 64
#: A round that swaps less than this share of a range's vertices is the last.
_SETTLED = 0.001


class _Lists(NamedTuple):
    """A graph and its reverse (`layout.reverse`)."""

    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]
    starts: NDArray[np.int64]
    sources: NDArray[np.uint32]


@dataclass(frozen=True)
class GraphBisectionOrder(Order):
    """Recursive bisection of the graph down to pages.

    Attributes
    ----------
    rounds : int
        Most rounds of a level.
    """

    rounds: int = DEFAULT_ROUNDS
    #: Least slots of a range that all threads divide together; smaller ranges are divided in parallel.
    large: ClassVar[int] = 1 << 16
    memory = OrderMemory(36, 4)

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. Once work is spent, smaller ranges keep their order."""
        graph, threads, work = given.graph, given.threads, given.work
        order = BreadthFirstOrder().arrange(given._replace(points=None))
        edges = int(graph.degrees.sum(dtype=np.int64))
        if not work.spend(2 * edges):
            return order
        lists = _Lists(graph.neighbours, graph.degrees, *in_neighbours(graph))
        slots = (order, invert(order), np.empty(len(order), np.int32))  # vertices, their places, their gains
        bounds = np.array([0, len(order)], np.int64)
        # A round follows every edge from both ends, and those of swapped vertices again.
        while len((level := next_level(bounds, given.nodes_per_page, 1)).firsts):
            rounds = min(self.rounds, work.left // max(1, 4 * edges))
            if not rounds:
                break
            large = level.sizes >= self.large
            for r in np.flatnonzero(large):
                rounds_taken = _divide_large(lists, slots, level.subset(slice(r, r + 1)), rounds, threads)
                work.spend(4 * edges * rounds_taken * int(level.sizes[r]) // len(order))
            small = level.subset(~large)

            def run(first: int, last: int) -> int:
                ranges = small.subset(slice(first, last))  # noqa: B023
                return int(_divide_small(lists, slots, *ranges, rounds))  # noqa: B023

            work.spend(sum(run_blocks(run, len(small.firsts), -(-len(small.firsts) // _RUNS) or 1, threads)))
            bounds = split_at(bounds, level)
        return order


def _divide_large(lists: Any, slots: Any, level: Level, rounds: int, threads: int) -> int:
    """Divide a level's only range, with gains computed on threads; return the number of rounds."""
    first, middle, last = (int(bound[0]) for bound in level)

    def take(begin: int, end: int) -> None:
        _take_gains(lists, slots, first, middle, last, first + begin, first + end)

    for taken in range(rounds):
        run_blocks(take, last - first, _BLOCK, threads)
        if _swap(lists, slots, first, middle, last) <= _SETTLED * (last - first):
            return taken + 1
    return rounds


@kernel
def _divide_small(
    lists: Any, slots: Any, firsts: Any, middles: Any, lasts: Any, rounds: int
) -> Any:  # pragma: no cover - compiled
    """Divide ranges one after the other, as `_divide_large` does; return an upper bound of the edges followed.

    Meanwhile other threads move vertices within other ranges, never into or out of a range.
    """
    order = slots[0]
    spent = 0
    for r in range(firsts.size):
        first, middle, last = firsts[r], middles[r], lasts[r]
        edges = 0
        for i in range(first, last):
            v = order[i]
            edges += lists.degrees[v] + lists.starts[v + 1] - lists.starts[v]
        for _ in range(rounds):
            _take_gains(lists, slots, first, middle, last, first, last)
            spent += 2 * edges
            swapped = _swap(lists, slots, first, middle, last)
            if swapped <= _SETTLED * (last - first):
                break
    return spent


@kernel
def _gain(
    lists: Any, places: Any, v: Any, first: Any, middle: Any, last: Any
) -> Any:  # pragma: no cover - compiled
    """Return the number of edges between `v` and the right half minus those between `v` and the left half."""
    gain = 0
    for j in range(lists.degrees[v]):
        place = np.int64(places[lists.neighbours[v, j]])
        if first <= place < last:
            gain += 1 if place >= middle else -1
    for e in range(lists.starts[v], lists.starts[v + 1]):
        place = np.int64(places[lists.sources[e]])
        if first <= place < last:
            gain += 1 if place >= middle else -1
    return gain


@kernel
def _take_gains(
    lists: Any, slots: Any, first: Any, middle: Any, last: Any, begin: Any, end: Any
) -> None:  # pragma: no cover - compiled
    """Write the edges that a move of each vertex in slots `begin` to `end` would save."""
    order, places, gains = slots
    for i in range(begin, end):
        right = _gain(lists, places, order[i], first, middle, last)
        gains[i] = right if i < middle else -right


@kernel
def _swap(lists: Any, slots: Any, first: Any, middle: Any, last: Any) -> Any:  # pragma: no cover - compiled
    """Swap pairs in the order of falling gain if that saves an edge; return the number of swaps."""
    order, places, gains = slots
    lefts = first + np.argsort(-gains[first:middle], kind="mergesort")
    rights = middle + np.argsort(-gains[middle:last], kind="mergesort")
    swapped = 0
    for k in range(min(lefts.size, rights.size)):
        i, j = lefts[k], rights[k]
        if gains[i] + gains[j] <= 0:
            break
        v, u = order[i], order[j]
        saved = _gain(lists, places, v, first, middle, last)
        saved -= _gain(lists, places, u, first, middle, last)
        for e in range(lists.degrees[v]):
            saved -= 2 * (lists.neighbours[v, e] == u)
        for e in range(lists.degrees[u]):
            saved -= 2 * (lists.neighbours[u, e] == v)
        if saved > 0:
            order[i], order[j] = u, v
            places[u], places[v] = i, j
            swapped += 1
    return swapped
