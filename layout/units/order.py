"""Pages in an order that serves larger reads, too: units of 64 KiB and 1 MiB (object storage, spinning disks).

An order decides which vertices share a page. Here its pages change places and keep their vertices, so that page reads
stay what they are, and pages with many edges between them (`page_graph`) share a unit.

Units are filled one after the other. The next page is the one with the largest share of its remaining edges in the
unit, that is of its edges to pages of this unit and to pages without one. A share, and not the number of edges, takes a
page before most of its neighbours have gone elsewhere. The first page of a unit is chosen likewise for the unit before;
if no page has an edge to that unit, the first page without a unit comes next.

Large units are filled first, and then each is divided into smaller ones in the same way, by the edges within it.
Filling small units first, and large ones with these, leaves more large units to read.

Time: O(n) for the page graph, then for each page a scan of the pages with edges into its unit. Memory: 8 bytes a vertex
and 16 a page. Page graph and state are scratch space, at most as large as the graph's lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.order import Given, InputShape, Order, OrderMemory
from indexmill.layout.units.page_graph import NEIGHBOURS, page_graph, room_for_edges, weight_of

#: Pages of a unit, largest first: 1 MiB and 64 KiB of pages of 4 KiB.
UNIT_PAGES = (256, 16)
#: Bytes a vertex where a page holds one node, and fewer elsewhere.
_VERTEX_BYTES = 24
#: Place of a page that has its unit; no page has so high a number.
_PLACED = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True)
class InUnits(Order):
    """The pages of an order, put in units.

    Attributes
    ----------
    pages : Order
        Decides which vertices share a page.
    unit_pages : tuple of int
        Pages of a unit, largest first; each a multiple of the next.
    """

    pages: Order
    unit_pages: tuple[int, ...] = UNIT_PAGES

    @property
    def uses_points(self) -> bool:
        """Whether the order of the vertices uses the vectors."""
        return self.pages.uses_points

    @property
    def needs_points(self) -> bool:
        """Whether the order of the vertices cannot be made without vectors."""
        return self.pages.needs_points

    @property
    def memory(self) -> OrderMemory:
        """Memory of the order: pages are put in units when nothing else is held."""
        memory = self.pages.memory
        return memory._replace(a_vertex=max(memory.a_vertex, _VERTEX_BYTES))

    def scratch_bytes(self, graph: InputShape) -> int:
        """See `layout.order.Order`: what the order of the vertices takes, or the graph of the pages."""
        return max(self.pages.scratch_bytes(graph), 4 * graph.n * graph.max_degree)

    def expected_scratch_bytes(self, graph: InputShape) -> int:
        """See `layout.order.Order`."""
        return max(self.pages.expected_scratch_bytes(graph), 4 * graph.n * graph.max_degree)

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. Once work is spent, pages stay where they are."""
        return in_units(self.pages.arrange(given), given, self.unit_pages)


class _State(NamedTuple):
    """State while units are filled: uint32 arrays, shape (n_pages,).

    Attributes
    ----------
    pages, filled
        By place: the page, before and after.
    places
        By page: its place in `pages`, or `_PLACED` once it is in `filled`.
    inside, outside
        By page: edges between it and the unit, and between it and the pages without a unit.
    near
        Pages without a unit that have edges into this one, at the front of the array, in any order.
    at
        By page: its place in `near`.
    """

    pages: NDArray[np.uint32]
    filled: NDArray[np.uint32]
    places: NDArray[np.uint32]
    inside: NDArray[np.uint32]
    outside: NDArray[np.uint32]
    near: NDArray[np.uint32]
    at: NDArray[np.uint32]


def in_units(
    order: NDArray[np.uint32], given: Given, unit_pages: tuple[int, ...] = UNIT_PAGES
) -> NDArray[np.uint32]:
    """Return `order`, uint32 (m,), with its full pages in another order; the vertices of a page stay as they are.

    A last page that is not full remains the last. The result is `order` itself if all full pages fit in the smallest
    unit, if the lists of the graph are too short for scratch space no larger than they, or if work is spent.

    Parameters
    ----------
    order : uint32 array, shape (m,)
        Different vertices of the graph, all or some.
    given : Given
        Its graph, nodes of a page, work and scratch space are used.
    unit_pages : tuple of int
        See `InUnits`.
    """
    graph, b = given.graph, given.nodes_per_page
    n_pages, most = len(order) // b, graph.neighbours.shape[1]
    columns = len(_State._fields)
    edges = room_for_edges(b * most - columns)
    if n_pages <= unit_pages[-1] or not edges:
        return order
    if not given.work.spend(len(order) * min(most, NEIGHBOURS) + len(unit_pages) * n_pages * edges):
        return order
    with given.scratch(np.uint32, (n_pages, edges + columns)) as room:
        lists, rest = np.split(room.reshape(-1), [n_pages * edges])
        pages = page_graph(graph, order, b, lists.reshape(n_pages, edges))
        state = _State(*rest.reshape(columns, n_pages))
        state.pages[:] = np.arange(n_pages, dtype=np.uint32)
        reach = n_pages
        for unit in unit_pages:
            _fill(pages, state, reach, unit)
            state.pages[:] = state.filled
            reach = unit
        arranged: NDArray[np.uint32] = _arranged(order, state.pages, b)
    return arranged


@kernel
def _fill(graph: Any, state: Any, reach: int, unit: int) -> None:  # pragma: no cover - compiled
    """Fill units of `unit` pages from each stretch of `reach` pages, by the edges within the stretch."""
    n = state.pages.size
    shares = np.empty(min(n, reach), np.float32)
    for i in range(n):
        state.places[state.pages[i]] = i
        state.inside[i], state.outside[i] = 0, 0
    for first in range(0, n, reach):
        last: Any = min(first + reach, n)
        _count_outside(graph, state, first, last)
        n_near, unplaced = 0, first
        for i in range(first, last):
            best = _largest(shares, state.near, n_near)
            if best < 0:
                while state.places[state.pages[unplaced]] == _PLACED:
                    unplaced += 1
                page = np.int64(state.pages[unplaced])
            else:
                page = np.int64(state.near[best])
                n_near -= 1
                state.near[best], shares[best] = state.near[n_near], shares[n_near]
                state.at[state.near[best]] = best
                state.inside[page] = 0
            if (i - first) % unit == 0:
                _forget(state, n_near)
                n_near = 0
            state.filled[i], state.places[page] = page, _PLACED
            for j in range(graph.degrees[page]):
                other = np.int64(graph.neighbours[page, j])
                if first <= state.places[other] < last:
                    n_near = _join(state, shares, n_near, other, graph.weights[page, j])
            for e in range(graph.starts[page], graph.starts[page + 1]):
                other = np.int64(graph.sources[e])
                if first <= state.places[other] < last:
                    n_near = _join(state, shares, n_near, other, weight_of(graph, other, page))
        _forget(state, n_near)


@kernel
def _count_outside(graph: Any, state: Any, first: int, last: int) -> None:  # pragma: no cover - compiled
    """Count the edges between each page of a stretch and the others."""
    for i in range(first, last):
        page = np.int64(state.pages[i])
        for j in range(graph.degrees[page]):
            other = np.int64(graph.neighbours[page, j])
            if first <= state.places[other] < last:
                state.outside[page] += graph.weights[page, j]
                state.outside[other] += graph.weights[page, j]


@kernel
def _largest(shares: Any, near: Any, n_near: int) -> Any:  # pragma: no cover - compiled
    """Return the place in `near` of the page with the largest share, ties by its number; -1 if there is none."""
    best = -1
    for i in range(n_near):
        if best < 0 or shares[i] > shares[best] or (shares[i] == shares[best] and near[i] < near[best]):
            best = i
    return best


@kernel
def _forget(state: Any, n_near: int) -> None:  # pragma: no cover - compiled
    """Begin a unit, which no page has edges into yet."""
    for i in range(n_near):
        state.inside[state.near[i]] = 0


@kernel
def _join(state: Any, shares: Any, n_near: int, page: int, weight: Any) -> Any:  # pragma: no cover - compiled
    """Move `weight` edges of `page` from outside to inside; return the number of pages with edges into the unit."""
    if state.inside[page] == 0:
        state.near[n_near], state.at[page] = page, n_near
        n_near += 1
    state.inside[page] += weight
    state.outside[page] -= weight
    shares[state.at[page]] = np.float32(state.inside[page]) / np.float32(state.outside[page] + np.uint32(1))
    return n_near


@kernel
def _arranged(order: Any, pages: Any, b: int) -> Any:  # pragma: no cover - compiled
    """Return `order` with its full pages as in `pages`, and what does not fill a page behind them."""
    arranged = order.copy()
    for i in range(pages.size):
        begin = np.int64(pages[i]) * b
        arranged[i * b : i * b + b] = order[begin : begin + b]
    return arranged
