"""The page graph of an order: a vertex for each full page.

An edge weighs as many edges as lead from the vertices of one page to those of the other. Of a vertex the nearest
neighbours count, and a page keeps the edges that weigh most.

Time: O(n). Memory: 4 bytes a vertex and 8 a page; lists are in room that is given, and may be in a mapped file.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.order import Adjacency
from indexmill.layout.reverse import reverse

#: Nearest neighbours of a vertex that count: of 32 all would cost half as much time again, and save 1% of the units.
NEIGHBOURS = 16
#: Edges of a page at most.
_MOST_EDGES = 32
#: Numbers for two edges: two neighbours, two in-neighbours, and two weights, of which two are one number.
_PAIR = 5


class PageGraph(NamedTuple):
    """The page graph.

    Attributes
    ----------
    neighbours : uint32 array, shape (n_pages, K)
        The first ``degrees[p]`` of a row are the neighbours of page p, those with most edges first.
    weights : uint16 array, shape (n_pages, K)
        Number of these edges.
    degrees : int32 array, shape (n_pages,)
    starts, sources : int64 array, shape (n_pages + 1,), and uint32 array
        In-neighbours, as `layout.reverse.reverse` returns and writes them.
    """

    neighbours: NDArray[np.uint32]
    weights: NDArray[np.uint16]
    degrees: NDArray[np.int32]
    starts: NDArray[np.int64]
    sources: NDArray[np.uint32]


def room_for_edges(numbers: int) -> int:
    """Return how many of `numbers` a page the page graph makes use of; 0 if they are too few for an edge."""
    return max(0, min(_MOST_EDGES // 2, numbers // _PAIR)) * _PAIR


def page_graph(
    graph: Adjacency, order: NDArray[np.uint32], nodes_per_page: int, room: NDArray[np.uint32]
) -> PageGraph:
    """Return the page graph of an order.

    Parameters
    ----------
    graph : Adjacency
    order : uint32 array, shape (m,)
        Different vertices of the graph, all or some; edges to others do not count.
    nodes_per_page : int
    room : uint32 array, shape (m // nodes_per_page, room_for_edges(...))
        Contiguous; holds the lists.
    """
    n_pages, most = len(room), room.shape[1] // _PAIR * 2
    lists, sources, halves = np.split(room.reshape(-1), [n_pages * most, 2 * n_pages * most])
    neighbours, weights = lists.reshape(n_pages, most), halves.view(np.uint16).reshape(n_pages, most)
    pages = np.full(len(graph.degrees), n_pages, np.uint32)
    pages[order] = np.arange(len(order), dtype=np.uint32) // np.uint32(nodes_per_page)
    degrees = _count_edges(*graph, order, pages, nodes_per_page, neighbours, weights)
    del pages
    return PageGraph(neighbours, weights, degrees, reverse(neighbours, degrees, sources), sources)


@kernel
def weight_of(graph: Any, page: int, other: int) -> Any:  # pragma: no cover - compiled
    """Return the weight of the edge from `page` to `other`, which is in its list."""
    j = 0
    while graph.neighbours[page, j] != other:
        j += 1
    return graph.weights[page, j]


@kernel
def _count_edges(
    neighbours: Any, degrees: Any, order: Any, pages: Any, b: int, lists: Any, weights: Any
) -> Any:  # pragma: no cover - compiled
    """Write the lists of pages and their weights; return their lengths. `pages` are those of the vertices."""
    n_pages = lists.shape[0]
    counts, lengths = np.zeros(n_pages, np.uint32), np.zeros(n_pages, np.int32)
    found = np.empty(b * NEIGHBOURS, np.uint32)
    for page in range(n_pages):
        n_found = 0
        for v in order[page * b : page * b + b]:
            for j in range(min(degrees[v], NEIGHBOURS)):
                other = np.int64(pages[neighbours[v, j]])
                if other == page or other >= n_pages:  # no page, or a last one that is not full
                    continue
                if counts[other] == 0:
                    found[n_found] = other
                    n_found += 1
                counts[other] += 1
        listed, their_weights, length = lists[page], weights[page], 0
        for i in range(n_found):
            length = _insert(listed, their_weights, length, found[i], counts[found[i]])
            counts[found[i]] = 0
        lengths[page] = length
    return lengths


@kernel
def _insert(
    listed: Any, weights: Any, length: int, page: Any, weight: Any
) -> Any:  # pragma: no cover - compiled
    """Insert a page behind those that weigh at least as much, perhaps in place of the last; return the new length."""
    weight = min(weight, np.uint32(0xFFFF))
    if length == listed.size and weights[length - 1] >= weight:
        return length
    at = min(length, listed.size - 1)
    while at > 0 and weights[at - 1] < weight:
        listed[at], weights[at] = listed[at - 1], weights[at - 1]
        at -= 1
    listed[at], weights[at] = page, weight
    return min(length + 1, listed.size)
