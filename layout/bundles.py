"""Bundles: what a repeated query reads, put on pages of its own at the front of an order.

A log of queries tells which vertices each of them wants. Queries that want mostly the same vertices repeat each other,
exactly or nearly. Each group of such queries may get a bundle: a few whole pages with the vertices that it wants most.
A search for a repeated query then reads these pages, where it would read one for every few vertices. A vertex has one
place, so it leaves the page that it had in the order. What remains of such pages is merged first-fit-decreasing
(`layout.ffd`), so that vertices that shared a page still do.

A bundle takes vertices from the queries that do not repeat. It pays only for a group that will be asked for often
enough: for a group with several queries that is its share of the log; for a query that came once, the share of the
second half of the log that repeats a query of which the first half has one, divided among those queries. Groups that
will be asked for more come first, both in the file and in the choice of vertices.

Pages that lost a vertex leave their units (`layout.units`), and bundles move all others. So the pages behind the
bundles are put in units anew: a unit that bundles do not fill is filled up with other pages, and the next begins where
a read of its size does.

Time: O(n + q w) for q queries that want w vertices, and for each query the leaders that want one of its vertices.
Memory: 14 bytes a vertex, 24 with units, and up to 48 bytes for each of the q w, where all queries are one group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.ffd import lay_out
from indexmill.layout.order import Given
from indexmill.layout.units.order import UNIT_PAGES, in_units

#: Vertices of a bundle, which is rounded up to whole pages; 45 and 90 save less on sift1m.
BUNDLE_VERTICES = 60
#: Most wanted vertices of a query, which tell whether it repeats another one.
COMPARED = 10
#: A bundle is made for a group whose share of the queries is at least this multiple of the bundle's share of the
#: vertices. A group saves about three quarters of its page reads. Where a hundredth of all vertices is moved, other
#: queries read about a hundredth more pages, or somewhat more than that.
_WORTH = 2
#: Stands for no vertex, and for no leader.
NOBODY = -1


class Bundled(NamedTuple):
    """An order with bundles.

    Attributes
    ----------
    order : uint32 array, shape (n,)
        ``order[slot]`` is the vertex in `slot`; bundles come first.
    sizes : int64 array, shape (n_bundles,)
        Vertices of each bundle, which fill whole pages.
    """

    order: NDArray[np.uint32]
    sizes: NDArray[np.int64]


def bundle_size(nodes_per_page: int) -> int:
    """Return the number of vertices of a bundle."""
    return -(-BUNDLE_VERTICES // nodes_per_page) * nodes_per_page


def leaders_of(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first query of the group that each query belongs to, int64 (q,).

    A query joins the leader with which it shares the most of its first `COMPARED` vertices, if that is half of them;
    ties: the earlier leader. Otherwise it is a leader itself. Later queries do not change the groups of earlier ones.

    Parameters
    ----------
    wanted : int64 array, shape (q, w)
        Distinct vertices that each query wants, most wanted first; `NOBODY` behind the last.
    """
    compared = wanted[:, :COMPARED]
    values, numbers = np.unique(compared, return_inverse=True)
    numbers = np.where(compared == NOBODY, NOBODY, numbers.reshape(compared.shape))
    leaders: NDArray[np.int64] = _lead(numbers, len(values))
    return leaders


@kernel
def _lead(numbers: Any, n_values: int) -> Any:  # pragma: no cover - compiled
    """See `leaders_of`; `numbers` stand for vertices, and a list for each links the leaders that want it."""
    n_queries, width = numbers.shape
    head = np.full(n_values, NOBODY)
    after, owner = np.empty(numbers.size, np.int64), np.empty(numbers.size, np.int64)
    shared, leaders, filled = np.zeros(n_queries, np.int64), np.arange(n_queries), 0
    for query in range(n_queries):
        size = 0
        while size < width and numbers[query, size] != NOBODY:
            link = head[numbers[query, size]]
            while link != NOBODY:
                shared[owner[link]] += 1
                link = after[link]
            size += 1
        best, most = query, 0
        for j in range(size):
            link = head[numbers[query, j]]
            while link != NOBODY:
                leader = owner[link]
                if shared[leader] > most or (shared[leader] == most and most > 0 and leader < best):
                    best, most = leader, shared[leader]
                shared[leader] = 0  # its other links find nothing more
                link = after[link]
        if 2 * most >= size and most > 0:
            leaders[query] = best
            continue
        for j in range(size):
            owner[filled], after[filled] = query, head[numbers[query, j]]
            head[numbers[query, j]] = filled
            filled += 1
    return leaders


def bundled(
    order: NDArray[np.uint32], wanted: NDArray[np.int64], leaders: NDArray[np.int64], nodes_per_page: int,
    units: Given | None = None,
) -> Bundled:  # fmt: skip
    """Return `order` with a bundle for each group of queries that is worth one; `order` itself if none is.

    Parameters
    ----------
    order : uint32 array, shape (n,)
    wanted : int64 array, shape (q, w)
        Distinct vertices that each query wants, most wanted first; `NOBODY` behind the last.
    leaders : int64 array, shape (q,)
        See `leaders_of`.
    nodes_per_page : int
        b, at least 1.
    units : Given, optional
        Its graph, work and scratch space put the other pages in units; by default these stay in turn.
    """
    n, size = len(order), bundle_size(nodes_per_page)
    rates = _rates(leaders)
    worth = np.flatnonzero(rates * n >= _WORTH * size)
    by_group = np.argsort(leaders, kind="stable")
    starts = np.searchsorted(leaders[by_group], np.arange(len(leaders) + 1))
    is_taken, bundles = np.zeros(n, np.bool_), [order[:0]]
    for leader in worth[np.argsort(-rates[worth], kind="stable")]:
        ranked = _most_wanted(wanted[by_group[starts[leader] : starts[leader + 1]]])
        free = ranked[~is_taken[ranked]][:size]
        bundles.append(free[: len(free) // nodes_per_page * nodes_per_page].astype(np.uint32))
        is_taken[bundles[-1]] = True
    sizes = np.array([len(bundle) for bundle in bundles if len(bundle)], np.int64)
    if not len(sizes):
        return Bundled(order, sizes)
    remains = ~is_taken[order]
    left = np.add.reduceat(remains, np.arange(0, n, nodes_per_page), dtype=np.int64)
    rest = lay_out(order[remains], left[left > 0], nodes_per_page)
    if units is not None:
        rest = _in_units_behind(int(sizes.sum()) // nodes_per_page, rest, units)
    return Bundled(np.concatenate([*bundles, rest]), sizes)


def _in_units_behind(n_pages: int, rest: NDArray[np.uint32], given: Given) -> NDArray[np.uint32]:
    """Return the order `rest` in units aligned to those of the file, whose first `n_pages` pages are bundles."""
    begins = [-n_pages % unit * given.nodes_per_page for unit in reversed(UNIT_PAGES)]
    first, *pieces = np.split(rest, begins)
    return np.concatenate([first, *(in_units(piece, given) for piece in pieces)])


def _rates(leaders: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of the queries to come that will belong to the group of each leader, float64 (q,); else 0."""
    n_queries, half = len(leaders), len(leaders) // 2
    counts = np.bincount(leaders, minlength=n_queries)
    came_once = np.bincount(leaders[:half], minlength=n_queries) == 1
    once_more = came_once[leaders[half:]].mean() / max(1, int(came_once.sum()))
    return np.where(counts == 1, once_more, counts / n_queries)


def _most_wanted(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the vertices that the queries of a group want: first those that more of them want, and want more.

    A vertex has a point for its place from the end in the list of each query, and as many as there are places for being
    in it; ties: the smaller vertex.
    """
    width = wanted.shape[1]
    points = np.broadcast_to(2 * width - np.arange(width), wanted.shape)
    there = wanted != NOBODY
    vertices, numbers = np.unique(wanted[there], return_inverse=True)
    return vertices[np.argsort(-np.bincount(numbers, points[there]), kind="stable")]
