"""Star packing (DiskANN++ section IV, Algorithm 3): a vertex shares its page with its nearest neighbours.

Packing takes one centre after the other; each takes a page together with its nearest neighbours that have no
page yet. Merging (`layout.ffd`, Algorithm 4) then joins the stars that do not fill a page, and stars that
still do not are laid out back to back, so that the map is a bijection on [0, n) and addressing stays
arithmetic.

Deviations from the paper. It walks centres in order of their number; we take the vertex with the most
neighbours that have no page yet (ties: the one that came to that count last), which packs fuller pages.
Neighbours that have a page are skipped: Algorithm 3 does not say so, but without it the map would not be
injective. Neighbours are ranked by exact distance where the paper uses PQ distance.

Time O(n R); memory 24 bytes a vertex, and 4 bytes an edge for the reverse graph, which may lie in a mapped file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.layout.ffd import lay_out
from indexmill.layout.order import Adjacency, Work
from indexmill.layout.reverse import reverse

_NOBODY = np.uint32(0xFFFFFFFF)
#: Stands in place of a count of homeless neighbours once a vertex has a page; no list is so long.
_HOUSED = np.uint16(0xFFFF)


@dataclass(frozen=True)
class StarOrder:
    """Star packing and first-fit-decreasing, with the reverse graph in memory."""

    def fit(
        self, graph: Adjacency, points: NDArray[Any] | None, nodes_per_page: int, seed: int,
        *, threads: int = 1, work: Work | None = None,
    ) -> NDArray[np.uint32]:  # fmt: skip
        """See `layout.order.Order`. Not interrupted: it spends two units an edge and never more."""
        if work is not None:
            work.spend(2 * int(graph.degrees.sum(dtype=np.int64)))
        return star_order(graph.neighbours, graph.degrees, nodes_per_page)


def star_order(
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    nodes_per_page: int,
    sources: NDArray[np.uint32] | None = None,
) -> NDArray[np.uint32]:
    """Return the star-packed order of a graph.

    Parameters
    ----------
    neighbours, degrees : uint32 array (n, R) and int32 array (n,)
        Lists hold the nearest neighbour first, as `builders.vamana.build` leaves them.
    nodes_per_page : int
        b, at least 1.
    sources : uint32 array, shape (n_edges,), optional
        Room for the reverse graph; overwritten.

    Returns
    -------
    uint32 array, shape (n,)
        ``order[slot]`` is the vertex in `slot`.
    """
    if sources is None:
        sources = np.empty(int(degrees.sum()), np.uint32)
    starts = reverse(neighbours, degrees, sources)
    vertices, sizes = _pack(neighbours, degrees, starts, sources, nodes_per_page)
    del starts
    return lay_out(vertices, sizes, nodes_per_page)


@njit(nogil=True, cache=True)
def _unlink(head: Any, after: Any, before: Any, count: Any, v: Any) -> None:  # pragma: no cover - compiled
    """Take `v` out of the doubly linked list of vertices with `count` homeless neighbours."""
    if before[v] != _NOBODY:
        after[before[v]] = after[v]
    else:
        head[count] = after[v]
    if after[v] != _NOBODY:
        before[after[v]] = before[v]


@njit(nogil=True, cache=True)
def _link(head: Any, after: Any, before: Any, count: Any, v: Any) -> None:  # pragma: no cover - compiled
    """Put `v` in front of the list of vertices with `count` homeless neighbours."""
    after[v] = head[count]
    before[v] = _NOBODY
    if head[count] != _NOBODY:
        before[head[count]] = v
    head[count] = v


@njit(nogil=True, cache=True)
def _pack(neighbours: Any, degrees: Any, starts: Any, sources: Any, b: int) -> Any:  # pragma: no cover
    """Algorithm 3: vertices star by star, uint32 (n,), and the size of each star, uint16.

    A vertex is homeless until it has a page. Homeless vertices hang in one list for each count of homeless
    neighbours, so the best centre and every update take constant time.
    """
    n, most = neighbours.shape
    homeless = degrees.astype(np.uint16)
    head = np.full(most + 1, _NOBODY, np.uint32)
    after, before = np.full(n, _NOBODY, np.uint32), np.full(n, _NOBODY, np.uint32)
    for v in range(n - 1, -1, -1):
        _link(head, after, before, homeless[v], v)
    vertices, sizes = np.empty(n, np.uint32), np.empty(n, np.uint16)
    filled, stars, top = 0, 0, most
    while filled < n:
        while head[top] == _NOBODY:
            top -= 1
        first, centre = filled, np.int64(head[top])
        vertices[filled] = centre
        _unlink(head, after, before, homeless[centre], centre)
        homeless[centre] = _HOUSED
        filled += 1
        for j in range(degrees[centre]):
            if filled - first == b:
                break
            u = np.int64(neighbours[centre, j])
            if homeless[u] != _HOUSED:
                _unlink(head, after, before, homeless[u], u)
                homeless[u] = _HOUSED
                vertices[filled] = u
                filled += 1
        for v in vertices[first:filled]:
            for e in range(starts[v], starts[v + 1]):
                w = np.int64(sources[e])
                if homeless[w] != _HOUSED:
                    _unlink(head, after, before, homeless[w], w)
                    homeless[w] -= 1
                    _link(head, after, before, homeless[w], w)
        sizes[stars] = filled - first
        stars += 1
    return vertices, sizes[:stars]
