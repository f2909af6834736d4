"""Star packing (DiskANN++ section IV, Algorithm 3): a vertex shares its page with its nearest neighbours.

Packing selects one centre after the other; each centre shares a page with its nearest neighbours that have no page yet.
Merging (`layout.ffd`, Algorithm 4) then combines stars that do not fill a page. Partial pages that remain are laid out
back to back, so that the map is a bijection on [0, n) and addressing stays arithmetic.

Deviations from the paper: it selects centres by number; here the next centre has most neighbours without a page (ties:
the vertex that reached this count last), which packs fuller pages. Neighbours with a page are skipped: Algorithm 3 does
not say so, but otherwise the map would not be injective. Neighbours are ranked by exact distance; the paper uses PQ
distances.

Time: O(n R). Memory: 20 bytes a vertex, 24 from 2^32 edges on, and 4 bytes an edge for the reverse graph, which may be
in a mapped file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.ffd import lay_out
from indexmill.layout.order import Given, InputShape, Order, OrderMemory
from indexmill.layout.reverse import reverse

_NOBODY = np.uint32(0xFFFFFFFF)
#: From so many edges on, the places of in-neighbours take 64 bits.
WIDE_EDGES = 1 << 32
#: Replaces the count of homeless neighbours once a vertex has a page; no list is so long.
_HOUSED = np.uint16(0xFFFF)


@dataclass(frozen=True)
class StarOrder(Order):
    """Star packing and first-fit-decreasing; the reverse graph is scratch space."""

    memory = OrderMemory(24)

    def scratch_bytes(self, graph: InputShape) -> int:
        """See `layout.order.Order`: the reverse graph."""
        return 4 * graph.n * graph.max_degree

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. It is never interrupted, and spends two units an edge."""
        edges = int(given.graph.degrees.sum(dtype=np.int64))
        given.work.spend(2 * edges)
        with given.scratch(np.uint32, (edges,)) as sources:
            return star_order(*given.graph, given.nodes_per_page, sources)


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
        Lists, nearest neighbour first, as `builders.vamana.build` returns them.
    nodes_per_page : int
        b, at least 1.
    sources : uint32 array, shape (n_edges,), optional
        Work space for the reverse graph.

    Returns
    -------
    uint32 array, shape (n,)
        ``order[slot]`` is the vertex in `slot`.
    """
    if sources is None:
        sources = np.empty(int(degrees.sum()), np.uint32)
    return lay_out(*packed_stars(neighbours, degrees, nodes_per_page, sources), nodes_per_page)


def packed_stars(
    neighbours: NDArray[np.uint32], degrees: NDArray[np.int32], nodes_per_page: int, sources: NDArray[np.uint32]
) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:  # fmt: skip
    """Return vertices star by star, uint32 (n,), and the size of each star; parameters are as of `star_order`."""
    starts = reverse(neighbours, degrees, sources)
    if len(sources) < WIDE_EDGES:
        starts = starts.astype(np.uint32)
    vertices, sizes = pack_stars(neighbours, degrees, starts, sources, nodes_per_page)
    return vertices, sizes


@kernel
def _unlink(head: Any, after: Any, before: Any, count: Any, v: Any) -> None:  # pragma: no cover - compiled
    """Remove `v` from the doubly linked list of vertices with `count` homeless neighbours."""
    if before[v] != _NOBODY:
        after[before[v]] = after[v]
    else:
        head[count] = after[v]
    if after[v] != _NOBODY:
        before[after[v]] = before[v]


@kernel
def _link(head: Any, after: Any, before: Any, count: Any, v: Any) -> None:  # pragma: no cover - compiled
    """Insert `v` at the front of the list of vertices with `count` homeless neighbours."""
    after[v] = head[count]
    before[v] = _NOBODY
    if head[count] != _NOBODY:
        before[head[count]] = v
    head[count] = v


@kernel
def pack_stars(neighbours: Any, degrees: Any, starts: Any, sources: Any, b: int) -> Any:  # pragma: no cover
    """Return vertices star by star, uint32 (n,), and the size of each star, uint16, by Algorithm 3.

    A vertex is homeless until it has a page. There is a list of homeless vertices for each count of homeless
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
