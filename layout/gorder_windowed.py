"""Gorder page by page (ParallelGorder of OOD-DiskANN, Jaiswal et al., 2022): the window is the page.

Vertices on different pages need not be near each other, so every page is packed by itself. It starts with a vertex that
has no page, and takes the vertex most akin to all on the page, by edges and common in-neighbours as in `layout.gorder`,
until it is full. Pages are independent, so many are packed at the same time.

Deviations: the paper's threads start pages at random vertices and compete for the rest. Here every thread has parts of
the graph to itself (`layout.parts`), so that the result does not depend on threads, and a page starts with the first
vertex of the part that has no page. A page without further kin is closed and merged with others.

Time: O(n R^2), on threads. Memory: 21 bytes a vertex, and for each thread 8 bytes an edge of its part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.order import Given, OrderMemory
from indexmill.layout.parts import OrderInParts, Packed, edges_inside, most_akin, pack_in_parts


@dataclass(frozen=True)
class GorderWindowed(OrderInParts):
    """Gorder within pages, part by part."""

    memory = OrderMemory(28, 0, 12)

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. Once work is spent, remaining parts keep the order of the clustering or walk."""

        def pack(members: NDArray[np.uint32], places: NDArray[np.uint32], first: int) -> Packed:
            inside = edges_inside(*given.graph, places, members, first)
            return Packed(*_pack(*inside, members, given.nodes_per_page))

        return pack_in_parts(given, self.part_pages, pack)


@kernel
def _pack(
    starts: Any, targets: Any, in_starts: Any, sources: Any, members: Any, b: int
) -> Any:  # pragma: no cover - compiled
    """Return groups of members, their sizes, and the number of edges followed."""
    m = members.size
    vertices, sizes = np.empty(m, np.uint32), np.empty(m, np.uint16)
    score, placed, kin = np.zeros(m, np.int32), np.zeros(m, np.bool_), np.empty(m, np.uint32)
    filled, groups, seed, spent = 0, 0, 0, 0
    while filled < m:
        while placed[seed]:
            seed += 1
        v: Any = seed
        begin, n_kin = filled, 0
        while True:
            placed[v] = True
            vertices[filled] = members[v]
            filled += 1
            if filled - begin == b:
                break
            for e in range(starts[v], starts[v + 1]):
                n_kin = _count(score, kin, n_kin, targets[e])
            for e in range(in_starts[v], in_starts[v + 1]):
                w = np.int64(sources[e])
                n_kin = _count(score, kin, n_kin, w)
                spent += starts[w + 1] - starts[w]
                for f in range(starts[w], starts[w + 1]):
                    n_kin = _count(score, kin, n_kin, targets[f])
            spent += starts[v + 1] - starts[v] + in_starts[v + 1] - in_starts[v]
            v = most_akin(score, placed, kin, n_kin)
            if v < 0:
                break
        for i in range(n_kin):
            score[kin[i]] = 0
        sizes[groups] = filled - begin
        groups += 1
    return vertices, sizes[:groups], spent


@kernel
def _count(score: Any, kin: Any, n_kin: Any, u: Any) -> Any:  # pragma: no cover - compiled
    """Raise the score of `u`, which joins the page's kin with its first unit; return the number of kin."""
    if score[u] == 0:
        kin[n_kin] = u
        n_kin += 1
    score[u] += 1
    return n_kin
