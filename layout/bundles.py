"""Bundles: what a repeated query reads, put on pages of its own at the front of an order.

Recorded searches tell which vertices each query of a log wants. Queries that want mostly the same vertices repeat each
other, exactly or nearly. Each group of such queries gets a bundle: a few whole pages with the vertices that it wants
most. A search of a repeated query then reads these pages in place of one page for every few vertices. A vertex has one
place, so it leaves the page that it had in the order; what remains of the pages is merged first-fit-decreasing
(`layout.ffd`), and vertices that shared a page still do.

A bundle takes vertices away from the queries that do not repeat. It is made only for a group whose share of the log is
at least the bundle's share of the vertices, and never for a query that was recorded once, since nothing tells that it
will come again. Larger groups come first, both in the file and in the choice of vertices.

Time: O(q w) for q queries that want w vertices, and O(n). Memory: 14 bytes a vertex, and 24 bytes for each of q w.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.ffd import lay_out

#: Vertices that a bundle is made for; it is rounded up to whole pages.
BUNDLE_VERTICES = 60
#: Most wanted vertices of a query, by which it is told whether it repeats another one.
COMPARED = 10
#: Queries of a group at least.
_LEAST_QUERIES = 2
#: Stands for no vertex, and for no group.
NOBODY = -1


class Bundled(NamedTuple):
    """An order with bundles.

    Attributes
    ----------
    order : uint32 array, shape (n,)
        ``order[slot]`` is the vertex in `slot`; bundles first.
    sizes : int64 array, shape (n_bundles,)
        Vertices of each bundle: whole pages.
    """

    order: NDArray[np.uint32]
    sizes: NDArray[np.int64]


def bundle_size(nodes_per_page: int) -> int:
    """Return the number of vertices of a bundle."""
    return -(-BUNDLE_VERTICES // nodes_per_page) * nodes_per_page


def leaders_of(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first query of the group that each query belongs to, int64 (q,).

    A query joins the leader with which it shares the most of its first `COMPARED` vertices, at least half of them;
    ties: the earlier leader. Without such a leader it is one.

    Parameters
    ----------
    wanted : int64 array, shape (q, w)
        Vertices that each query wants, most wanted first; `NOBODY` behind the last.
    """
    compared = wanted[:, :COMPARED]
    values, places = np.unique(compared, return_inverse=True)
    places = np.where(compared == NOBODY, NOBODY, places.reshape(compared.shape))
    leaders: NDArray[np.int64] = _lead(places, len(values))
    return leaders


@kernel
def _lead(places: Any, n_values: int) -> Any:  # pragma: no cover - compiled
    """See `leaders_of`; a list for each value links the leaders that have it."""
    n_queries, width = places.shape
    head = np.full(n_values, NOBODY)
    after, owner = np.full(places.size, NOBODY), np.empty(places.size, np.int64)
    shared, leaders, filled = np.zeros(n_queries, np.int64), np.arange(n_queries), 0
    for query in range(n_queries):
        best, size = NOBODY, 0
        for j in range(width):
            if places[query, j] == NOBODY:
                continue
            size += 1
            link = head[places[query, j]]
            while link != NOBODY:
                shared[owner[link]] += 1
                link = after[link]
        for j in range(size):
            link = head[places[query, j]]
            while link != NOBODY:
                leader = owner[link]
                more = best == NOBODY or shared[leader] > shared[best]
                if more or (shared[leader] == shared[best] and leader < best):
                    best = leader
                link = after[link]
        if best != NOBODY and 2 * shared[best] >= size:
            leaders[query] = best
        for j in range(size):
            link = head[places[query, j]]
            while link != NOBODY:
                shared[owner[link]] = 0
                link = after[link]
        if leaders[query] == query:
            for j in range(size):
                owner[filled], after[filled] = query, head[places[query, j]]
                head[places[query, j]] = filled
                filled += 1
    return leaders


def bundled(
    order: NDArray[np.uint32], wanted: NDArray[np.int64], leaders: NDArray[np.int64], nodes_per_page: int
) -> Bundled:
    """Return `order` with a bundle for each group of queries that is worth one.

    Parameters
    ----------
    order : uint32 array, shape (n,)
    wanted : int64 array, shape (q, w)
        Vertices that each query wants, most wanted first; `NOBODY` behind the last.
    leaders : int64 array, shape (q,)
        See `leaders_of`.
    nodes_per_page : int
        b, at least 1.
    """
    n, n_queries, size = len(order), len(wanted), bundle_size(nodes_per_page)
    counts = np.bincount(leaders, minlength=n_queries)
    worth = np.flatnonzero((counts >= _LEAST_QUERIES) & (counts * n >= n_queries * size))
    by_group = np.argsort(leaders, kind="stable")
    starts = np.searchsorted(leaders[by_group], np.arange(n_queries + 1))
    taken, bundles = np.zeros(n, np.bool_), [order[:0]]
    for leader in worth[np.argsort(-counts[worth], kind="stable")]:
        ranked = _most_wanted(wanted[by_group[starts[leader] : starts[leader + 1]]])
        free = ranked[~taken[ranked]][:size]
        bundles.append(free[: len(free) // nodes_per_page * nodes_per_page].astype(np.uint32))
        taken[bundles[-1]] = True
    remains = ~taken[order]
    left = np.add.reduceat(remains, np.arange(0, n, nodes_per_page), dtype=np.int64)
    rest = lay_out(order[remains], left[left > 0], nodes_per_page)
    sizes = np.array([len(bundle) for bundle in bundles if len(bundle)], np.int64)
    return Bundled(np.concatenate([*bundles, rest]), sizes)


def _most_wanted(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the vertices that the queries of a group want, those of more queries first, then the more wanted."""
    width = wanted.shape[1]
    ranks = np.broadcast_to(np.arange(width), wanted.shape)
    there = wanted != NOBODY
    vertices, places = np.unique(wanted[there], return_inverse=True)
    scores = np.bincount(places, 2 * width - ranks[there])
    return vertices[np.argsort(-scores, kind="stable")]
