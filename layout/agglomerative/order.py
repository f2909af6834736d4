"""Agglomerative pages: groups of near vertices merge until they fill a page.

The same queries need both vertices of a near pair, so an order is good if the vertices of a page are near each other.
`near` finds the vertices near each vertex, and how near, and `pairs` puts each pair in both lists. Every vertex begins
as a group of its own. Two groups A and B that fit a page together merge if each is the other's best partner, by

    sum of closeness between A and B / (|A| |B|)^(3/8),

until no two groups fit a page together (`merging`). This is agglomerative clustering by reciprocal nearest neighbours
(Murtagh, The Computer Journal, 1983) with a limit of size. With the power 0 large groups take everything near them and
many vertices stay alone; with the power 1, average linkage, groups grow evenly and few fill a page. Then the closest
groups get the pages there are, and the vertices of the other groups get the places that are left (`packing`).

Fewer page reads than with any other order, for a few times the time of star packing (`docs/guides/layout.md`). Swapping
vertices of full pages afterwards adds closeness, but saves no page read.

Parallel and deterministic: partners are found on threads, for the groups before a round, and no two merges of a round
have a group in common. Closeness is an integer, so sums do not depend on their order.

Most of the time would be spent on waiting for lists that lie all over memory, so each is fetched some turns before it
is read (`prefetch`), and a list keeps no group that does not fit a page with its own any more.

Time: O(n dim) for near vertices, then a few walks over pairs, which become fewer as groups grow. Memory: 24 bytes a
vertex. Lists, about 300 bytes a vertex, and byte codes of float vectors are scratch space, and vectors may be a mapped
file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexmill.layout.agglomerative.merging import merged
from indexmill.layout.agglomerative.near import NEAR, NEAR_BYTES, Near, byte_rows, find_near
from indexmill.layout.agglomerative.packing import packed
from indexmill.layout.agglomerative.pairs import PAIRS_BYTES, both_ways
from indexmill.layout.order import Given, InputShape, Order, OrderMemory, need_points


@dataclass(frozen=True)
class AgglomerativeOrder(Order):
    """Groups of near vertices, merged until they fill pages."""

    uses_points = needs_points = True

    @property
    def memory(self) -> OrderMemory:
        """Memory of the order: 36 bytes a vertex where the work is spent before groups merge, else 24."""
        return OrderMemory(36)

    def scratch_bytes(self, graph: InputShape) -> int:
        """See `layout.order.Order`: near vertices and their pairs, and byte codes before there are pairs."""
        codes = 0 if np.dtype(graph.dtype) == np.uint8 else graph.dim
        return graph.n * (NEAR_BYTES + max(PAIRS_BYTES, codes))

    def expected_scratch_bytes(self, graph: InputShape) -> int:
        """See `layout.order.Order`: of the pairs of near vertices two thirds stand in the lists of both."""
        return int(0.76 * self.scratch_bytes(graph))

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. Once work is spent, groups do not merge further."""
        points, b = need_points(given.points, "agglomerative"), given.nodes_per_page
        n = len(points)
        if b == 1 or not given.work.left:
            return np.arange(n, dtype=np.uint32)
        shape = (n, NEAR)
        with given.scratch(np.uint32, shape) as ids, given.scratch(np.uint8, shape) as closeness:
            near = Near(ids, closeness)
            with byte_rows(points, given) as rows:
                find_near(given.graph, rows, near, given.threads, given.work)
            with both_ways(near, given) as pairs:
                groups = merged(pairs, b, given.threads, given.work)
            return packed(groups, near, b, given.threads)
