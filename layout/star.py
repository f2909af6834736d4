"""Star packing (DiskANN++ section IV, Algorithm 3): a vertex shares its page with its nearest neighbours.

Packing takes one centre after the other; each takes a page together with its nearest neighbours that have no
page yet. Merging (`layout.ffd`, Algorithm 4) then joins the stars that do not fill a page, and stars that
still do not are laid out back to back, so that the map is a bijection on [0, n) and addressing stays
arithmetic.

Deviations from the paper. It walks centres in order of their number; we take the vertex with the most
neighbours that have no page yet (ties: the one that came to that count last), which packs fuller pages.
Neighbours that have a page are skipped: Algorithm 3 does not say so, but without it the map would not be
injective. Neighbours are ranked by exact distance where the paper uses PQ distance.

Time O(n R); memory 4 bytes an edge for the reverse graph and 40 bytes a vertex.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.layout.ffd import first_fit_decreasing


def star_order(
    neighbours: NDArray[np.uint32], degrees: NDArray[np.int32], nodes_per_page: int
) -> NDArray[np.uint32]:
    """Return the star-packed order of a graph.

    Parameters
    ----------
    neighbours, degrees : uint32 array (n, R) and int32 array (n,)
        Lists hold the nearest neighbour first, as `builders.vamana` leaves them.
    nodes_per_page : int
        b, at least 1.

    Returns
    -------
    uint32 array, shape (n,)
        ``order[slot]`` is the vertex in `slot`.
    """
    starts, sources = _reverse(neighbours, degrees)
    vertices, sizes = _pack(neighbours, degrees, starts, sources, nodes_per_page)
    begins = np.cumsum(sizes) - sizes
    stars = first_fit_decreasing(sizes, nodes_per_page)
    lengths = sizes[stars]
    # Gather the stars in their new order: positions begin, begin + 1, ... of each, one after the other.
    within = np.arange(len(vertices)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    order: NDArray[np.uint32] = vertices[np.repeat(begins[stars], lengths) + within]
    return order


@njit(nogil=True, cache=True)
def _reverse(neighbours: Any, degrees: Any) -> Any:  # pragma: no cover - compiled
    """In-neighbours: those of v are ``sources[starts[v]:starts[v + 1]]``, ascending."""
    n = neighbours.shape[0]
    starts = np.zeros(n + 1, np.int64)
    for v in range(n):
        for j in range(degrees[v]):
            starts[neighbours[v, j] + 1] += 1
    for v in range(n):
        starts[v + 1] += starts[v]
    sources = np.empty(starts[n], np.uint32)
    filled = starts[:-1].copy()
    for v in range(n):
        for j in range(degrees[v]):
            u = neighbours[v, j]
            sources[filled[u]] = v
            filled[u] += 1
    return starts, sources


@njit(nogil=True, cache=True)
def _unlink(head: Any, after: Any, before: Any, count: Any, v: Any) -> None:  # pragma: no cover - compiled
    """Take `v` out of the doubly linked list of vertices with `count` homeless neighbours."""
    if before[v] >= 0:
        after[before[v]] = after[v]
    else:
        head[count] = after[v]
    if after[v] >= 0:
        before[after[v]] = before[v]


@njit(nogil=True, cache=True)
def _link(head: Any, after: Any, before: Any, count: Any, v: Any) -> None:  # pragma: no cover - compiled
    """Put `v` in front of the list of vertices with `count` homeless neighbours."""
    after[v] = head[count]
    before[v] = -1
    if head[count] >= 0:
        before[head[count]] = v
    head[count] = v


@njit(nogil=True, cache=True)
def _pack(neighbours: Any, degrees: Any, starts: Any, sources: Any, b: int) -> Any:  # pragma: no cover
    """Algorithm 3: vertices star by star, uint32 (n,), and the size of each star, int64.

    A vertex is homeless until it has a page. Homeless vertices hang in one list for each count of homeless
    neighbours, so the best centre and every update take constant time.
    """
    n, most = neighbours.shape
    homeless = degrees.astype(np.int64)
    head = np.full(most + 1, -1, np.int64)
    after, before = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    for v in range(n - 1, -1, -1):
        _link(head, after, before, homeless[v], v)
    housed = np.zeros(n, np.bool_)
    vertices, sizes = np.empty(n, np.uint32), np.empty(n, np.int64)
    filled, stars, top = 0, 0, most
    while filled < n:
        while head[top] < 0:
            top -= 1
        first, centre = filled, head[top]
        vertices[filled] = centre
        housed[centre] = True
        filled += 1
        for j in range(degrees[centre]):
            if filled - first == b:
                break
            u = neighbours[centre, j]
            if not housed[u]:
                housed[u] = True
                vertices[filled] = u
                filled += 1
        for v in vertices[first:filled]:
            _unlink(head, after, before, homeless[v], v)
        for v in vertices[first:filled]:
            for e in range(starts[v], starts[v + 1]):
                w = np.int64(sources[e])
                if not housed[w]:
                    _unlink(head, after, before, homeless[w], w)
                    homeless[w] -= 1
                    _link(head, after, before, homeless[w], w)
        sizes[stars] = filled - first
        stars += 1
    return vertices, sizes[:stars]
