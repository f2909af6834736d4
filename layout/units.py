"""Order of pages for reads of many pages: units of 64 KiB and 1 MiB (object storage, spinning disks).

An order decides which vertices share a page. Here its pages change places and keep their vertices, so that page reads
stay what they are, and pages with many edges between them share a unit. Two pages are neighbours in the *page graph*;
their edge weighs as many edges of the graph as lead from one page to the other.

Units are filled one after the other. The next page is the one with the largest share of its remaining edges in the
unit: of the edges to pages without a unit, and to the pages of this unit. The share, rather than the number of edges,
takes a page before its neighbours have all gone elsewhere. The first page of a unit is chosen likewise by the unit
before, or else is the first of the order.

Large units are filled first. Each is then divided into smaller ones in the same way, by edges inside alone. (Filling
small units first, and large units with them, put more large units into the hands of a query: by 9% on sift1m.)

Time: O(n `_NEIGHBOURS`) for the page graph, then for each page a scan of the pages that touch its unit. Memory: 8 bytes
a vertex and at most 16 a page. The page graph is scratch space, never more than the edges of the graph itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.order import Adjacency, Given, Order, OrderMemory, invert
from indexmill.layout.reverse import reverse

#: Pages of a unit, largest first: 1 MiB and 64 KiB of pages of 4 KiB.
UNIT_PAGES = (256, 16)
#: Neighbours of a vertex that count, the nearest: all 32 of sift1m save 1% of the units, and take half as long again.
_NEIGHBOURS = 16
#: Neighbours of a page at most: those with most edges.
_PAGE_NEIGHBOURS = 32
#: Numbers that growing keeps of a page, besides its lists (`_State`).
_COLUMNS = 7
#: Place of a page that has its unit already.
_PLACED = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True)
class InUnits(Order):
    """The pages of an order, in units.

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
        """Whether the order of the pages uses the vectors."""
        return self.pages.uses_points

    @property
    def memory(self) -> OrderMemory:
        """Memory of the order: units need their part after the pages are made."""
        memory = self.pages.memory
        return memory._replace(a_vertex=max(memory.a_vertex, 24))

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. Once work is spent, pages stay where they are."""
        return in_units(self.pages.arrange(given), given, self.unit_pages)


class _PageGraph(NamedTuple):
    """The page graph.

    Attributes
    ----------
    neighbours : uint32 array, shape (n_pages, K)
        The first ``degrees[p]`` of a row are the neighbours of page p, those with most edges first.
    weights : uint16 array, shape (n_pages, K)
        Their edges.
    degrees : int32 array, shape (n_pages,)
    starts, sources : int64 array (n_pages + 1,) and uint32 array
        The reverse (`layout.reverse`).
    """

    neighbours: NDArray[np.uint32]
    weights: NDArray[np.uint16]
    degrees: NDArray[np.int32]
    starts: NDArray[np.int64]
    sources: NDArray[np.uint32]


class _State(NamedTuple):
    """State of growing, by page as far as nothing else is said; all have shape (n_pages,).

    Attributes
    ----------
    pages, grown : uint32 arrays
        Page in each place, before and after.
    places : uint32 array
        Inverse of `pages`; `_PLACED` once the page is in `grown`.
    inside, outside : uint32 arrays
        Edges between the page and those of the unit, and between it and those without a unit.
    near : uint32 array
        Pages that have edges into the unit, in no order; as many as there are of them.
    at : uint32 array
        Place of the page in `near`.
    """

    pages: NDArray[np.uint32]
    grown: NDArray[np.uint32]
    places: NDArray[np.uint32]
    inside: NDArray[np.uint32]
    outside: NDArray[np.uint32]
    near: NDArray[np.uint32]
    at: NDArray[np.uint32]


def in_units(
    order: NDArray[np.uint32], given: Given, unit_pages: tuple[int, ...] = UNIT_PAGES
) -> NDArray[np.uint32]:
    """Return `order`, uint32 (n,), with its full pages in another order; each page is as it was.

    A last page that is not full stays the last. The order is returned as it is where it has no more full pages than the
    smallest unit, where lists of the graph are very short, and once work is spent.
    """
    graph, b = given.graph, given.nodes_per_page
    n, n_pages = len(order), len(order) // b
    width = _width(b, graph.neighbours.shape[1])
    if n_pages <= unit_pages[-1] or not width:
        return order
    looked = n * min(_NEIGHBOURS, graph.neighbours.shape[1])
    if not given.work.spend(looked + 2 * len(unit_pages) * n_pages * width):
        return order
    with given.scratch(np.uint32, (n_pages * (5 * width // 2 + _COLUMNS),)) as room:
        lists, sources, weights, columns = np.split(room, np.cumsum([width, width, width // 2]) * n_pages)
        state = _State(*columns.reshape(_COLUMNS, n_pages))
        state.pages[:] = np.arange(n_pages)
        parts = lists.reshape(n_pages, width), weights.view(np.uint16).reshape(n_pages, width)
        degrees = _page_graph(graph, order, b, *parts)
        page_graph = _PageGraph(*parts, degrees, reverse(parts[0], degrees, sources), sources)
        reach = n_pages
        for unit in unit_pages:
            _grow(page_graph, state, reach, unit)
            state.pages[:] = state.grown
            reach = unit
        full = order[: n_pages * b].reshape(n_pages, b)[state.pages]
    return np.concatenate([full.reshape(-1), order[n_pages * b :]])


def _width(nodes_per_page: int, max_degree: int) -> int:
    """Return the length of the lists of pages, even, such that all takes no more space than the graph's edges."""
    return min(_PAGE_NEIGHBOURS, max(0, 4 * (nodes_per_page * max_degree - _COLUMNS) // 10)) // 2 * 2


def _page_graph(
    graph: Adjacency, order: NDArray[np.uint32], b: int, lists: NDArray[np.uint32], weights: NDArray[np.uint16]
) -> NDArray[np.int32]:  # fmt: skip
    """Write the neighbours of the full pages of `order`, and their weights; return their number, int32 (n_pages,)."""
    pages = invert(order)
    pages //= np.uint32(b)
    degrees: NDArray[np.int32] = _count_edges(*graph, order, pages, b, lists, weights)
    return degrees


@kernel
def _count_edges(
    neighbours: Any, degrees: Any, order: Any, pages: Any, b: int, lists: Any, weights: Any
) -> Any:  # pragma: no cover - compiled
    """See `_page_graph`; `pages` are those of the vertices."""
    n_pages = lists.shape[0]
    counts, lengths = np.zeros(n_pages, np.uint32), np.zeros(n_pages, np.int32)
    found = np.empty(b * _NEIGHBOURS, np.uint32)
    for page in range(n_pages):
        n_found = 0
        for v in order[page * b : page * b + b]:
            for j in range(min(degrees[v], _NEIGHBOURS)):
                other = np.int64(pages[neighbours[v, j]])
                if other == page or other >= n_pages:
                    continue
                if counts[other] == 0:
                    found[n_found] = other
                    n_found += 1
                counts[other] += 1
        pages_list, its_weights, length = lists[page], weights[page], 0
        for i in range(n_found):
            length = _insert(pages_list, its_weights, length, found[i], counts[found[i]])
            counts[found[i]] = 0
        lengths[page] = length
    return lengths


@kernel
def _insert(pages: Any, weights: Any, n: Any, page: Any, weight: Any) -> Any:  # pragma: no cover - compiled
    """Insert a page among the `n` heaviest ones, behind those that weigh as much; return their new number."""
    weight = min(weight, np.uint32(0xFFFF))
    if n == pages.size and weights[n - 1] >= weight:
        return n
    at: Any = min(np.int64(n), pages.size - 1)
    while at > 0 and weights[at - 1] < weight:
        pages[at], weights[at] = pages[at - 1], weights[at - 1]
        at -= 1
    pages[at], weights[at] = page, weight
    return min(n + 1, pages.size)


@kernel
def _grow(graph: Any, state: Any, reach: int, unit: int) -> None:  # pragma: no cover - compiled
    """Divide each stretch of `reach` pages into units; write the new order to ``state.grown``."""
    n = state.pages.size
    for i in range(n):
        state.places[state.pages[i]] = i
    shares = np.empty(min(n, reach), np.float32)
    state.inside[:] = 0
    state.outside[:] = 0
    for first in range(0, n, reach):
        last: Any = min(first + reach, n)
        for i in range(first, last):
            _count_outside(graph, state, state.pages[i], first, last)
        n_near, next_page = 0, first
        for i in range(first, last):
            best = _most_akin(state.near, shares, n_near)
            if best < 0:
                while state.places[state.pages[next_page]] == _PLACED:
                    next_page += 1
                page = np.int64(state.pages[next_page])
            else:
                page = np.int64(state.near[best])
                n_near -= 1
                state.near[best], shares[best] = state.near[n_near], shares[n_near]
                state.at[state.near[best]] = best
                state.inside[page] = 0
            if (i - first) % unit == 0:
                for j in range(n_near):
                    state.inside[state.near[j]] = 0
                n_near = 0
            state.grown[i] = page
            state.places[page] = _PLACED
            for j in range(graph.degrees[page]):
                other = np.int64(graph.neighbours[page, j])
                if first <= state.places[other] < last:
                    n_near = _touch(state, shares, n_near, other, graph.weights[page, j])
            for e in range(graph.starts[page], graph.starts[page + 1]):
                other = np.int64(graph.sources[e])
                if first <= state.places[other] < last:
                    n_near = _touch(state, shares, n_near, other, _weight(graph, other, page))
        for j in range(n_near):
            state.inside[state.near[j]] = 0


@kernel
def _count_outside(graph: Any, state: Any, page: Any, first: int, last: int) -> None:  # pragma: no cover
    """Count the edges of a page's list to pages in places `first` to `last`, at both ends."""
    for j in range(graph.degrees[page]):
        other = graph.neighbours[page, j]
        if first <= state.places[other] < last:
            state.outside[page] += graph.weights[page, j]
            state.outside[other] += graph.weights[page, j]


@kernel
def _most_akin(near: Any, shares: Any, n: int) -> Any:  # pragma: no cover - compiled
    """Return the place of the page with the largest share, ties by number; -1 for none."""
    best = -1
    for i in range(n):
        if best < 0 or shares[i] > shares[best] or (shares[i] == shares[best] and near[i] < near[best]):
            best = i
    return best


@kernel
def _touch(
    state: Any, shares: Any, n_near: int, page: int, weight: Any
) -> Any:  # pragma: no cover - compiled
    """Count the edges between `page` and one that was placed; return the number of pages near the unit."""
    if state.inside[page] == 0:
        state.near[n_near], state.at[page] = page, n_near
        n_near += 1
    state.inside[page] += weight
    state.outside[page] -= weight
    shares[state.at[page]] = np.float32(state.inside[page]) / np.float32(state.outside[page] + np.uint32(1))
    return n_near


@kernel
def _weight(graph: Any, page: int, other: int) -> Any:  # pragma: no cover - compiled
    """Return the weight of `other` in the list of `page`."""
    j = 0
    while graph.neighbours[page, j] != other:
        j += 1
    return graph.weights[page, j]
