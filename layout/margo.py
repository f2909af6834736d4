"""MARGO ("Select Edges Wisely", PVLDB 18(11), 2025): pages packed by the importance of edges for search paths.

A search follows a path on which every vertex is nearer to the target than the one before. The edge u -> v lies on the
paths from u to all candidates that v *occludes*: those that the robust prune of u dropped because v is much nearer to
them. The weight of the edge is one plus their number, times the in-degree of u, which approximates the number of paths
through u. The layout is greedy: the heaviest edge between two vertices without a page starts a page, and the vertex
with the greatest sum of weights, in both directions, to the vertices on the page joins it, until it is full. As in the
paper, this happens within clusters on threads, then once more for vertices on partial pages (`layout.parts`).

Deviation: the paper counts during the build, among the vertices that the search visited. Here weights are counted from
the vectors when pages are laid out, because an imported, appended or merged index has no counts. Occluded candidates
are counted among the neighbours; there are some, since lists are filled up with candidates that the prune dropped.
Counting also among the neighbours of the nearest neighbours gave pages with fewer edges and searches with more reads.

Time: at most O(n R^2) distances, on threads. Memory: 25 bytes a vertex, and for each thread 40 bytes an edge of its
part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.breadth_first import in_degrees
from indexmill.layout.order import Given, OrderMemory, need_points
from indexmill.layout.parts import OrderInParts, Packed, most_akin, pack_in_parts
from indexmill.reader.kernels import squared_distances

#: Slack of the prune, as in the builder, on squared distances.
_ALPHA = np.float32(1.2)


@dataclass(frozen=True)
class MargoOrder(OrderInParts):
    """MARGO with weights counted from the vectors."""

    needs_points = True
    memory = OrderMemory(32, 0, 40)

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. Once work is spent, the remaining parts keep the order of the clustering."""
        graph, points = given.graph, need_points(given.points, "margo")
        counts = in_degrees(graph.neighbours, graph.degrees)

        def pack(members: NDArray[np.uint32], places: NDArray[np.uint32], first: int) -> Packed:
            weights, measured = _weights(points, graph.neighbours, graph.degrees, counts, members)
            edges = _both_ways(graph.neighbours, graph.degrees, weights, places, members, first)
            vertices, sizes, looked = _pack(*edges, members, given.nodes_per_page)
            return Packed(vertices, sizes, measured * -(-points.shape[1] // 16) + looked)

        return pack_in_parts(given, self.part_pages, pack)


@kernel
def _weights(
    points: Any, neighbours: Any, degrees: Any, counts: Any, members: Any
) -> Any:  # pragma: no cover - compiled
    """Return the weights of the members' edges, uint32 (m, R), and the number of distances computed."""
    most = neighbours.shape[1]
    weights = np.zeros((members.size, most), np.uint32)
    ids, at, occluded = np.empty(most, np.uint32), np.empty(most, np.uint32), np.empty(most, np.bool_)
    far, reached = np.empty(most, np.float32), np.empty(most, np.float32)
    measured: Any = 0
    for i in range(members.size):
        u = np.int64(members[i])
        degree = np.int64(degrees[u])
        ids[:degree] = neighbours[u, :degree]
        squared_distances(points, u, points, ids, degree, far)
        measured += degree
        occluded[:degree] = False
        paths = max(counts[u], np.uint32(1))
        for j in range(degree):
            weights[i, j] = paths
            if occluded[j]:
                continue
            n: Any = 0
            for k in range(j + 1, degree):
                if not occluded[k]:
                    ids[n], at[n] = neighbours[u, k], k
                    n += 1
            squared_distances(points, np.int64(neighbours[u, j]), points, ids, n, reached)
            measured += n
            for k in range(n):
                if _ALPHA * reached[k] <= far[at[k]]:
                    occluded[at[k]] = True
                    weights[i, j] += paths
    return weights, measured


@kernel
def _both_ways(
    neighbours: Any, degrees: Any, weights: Any, places: Any, members: Any, first: int
) -> Any:  # pragma: no cover - compiled
    """Return the edges between members as undirected edges, with the weights of both directions added.

    Returns
    -------
    starts, targets, sums : int64 (m + 1,) array, two uint32 arrays
        Neighbours of each member, ascending.
    """
    m = members.size
    starts = np.zeros(m + 1, np.int64)
    for i in range(m):
        v = members[i]
        for j in range(degrees[v]):
            place = np.int64(places[neighbours[v, j]]) - first
            if 0 <= place < m:
                starts[i + 1] += 1
                starts[place + 1] += 1
    starts = np.cumsum(starts)
    ends = starts[:m].copy()
    targets, sums = np.empty(starts[m], np.uint32), np.empty(starts[m], np.uint32)
    for i in range(m):
        v = members[i]
        for j in range(degrees[v]):
            place = np.int64(places[neighbours[v, j]]) - first
            if 0 <= place < m:
                for a, b in ((i, place), (place, i)):
                    targets[ends[a]], sums[ends[a]] = b, weights[i, j]
                    ends[a] += 1
    kept = 0
    for i in range(m):
        begin, end = starts[i], starts[i + 1]
        starts[i] = kept
        order = np.argsort(targets[begin:end])
        some, theirs = targets[begin:end][order], sums[begin:end][order]
        for k in range(end - begin):
            if kept > starts[i] and targets[kept - 1] == some[k]:
                sums[kept - 1] += theirs[k]
            else:
                targets[kept], sums[kept] = some[k], theirs[k]
                kept += 1
    starts[m] = kept
    return starts, targets[:kept], sums[:kept]


@kernel
def _pack(starts: Any, targets: Any, sums: Any, members: Any, b: int) -> Any:  # pragma: no cover - compiled
    """Return groups of members, their sizes, and the edges followed; a vertex without such an edge is a group."""
    m = members.size
    vertices, sizes = np.empty(m, np.uint32), np.empty(m, np.uint16)
    score, placed, near = np.zeros(m, np.uint32), np.zeros(m, np.bool_), np.empty(m, np.uint32)
    heads, tails = _heaviest_first(starts, targets, sums)
    alone: Any = 0
    filled, groups, spent, edge = 0, 0, heads.size, 0
    while filled < m:
        while edge < heads.size and (placed[heads[edge]] or placed[tails[edge]]):
            edge += 1
        while edge == heads.size and placed[alone]:
            alone += 1
        v = np.int64(heads[edge]) if edge < heads.size else alone
        begin, n_near = filled, 0
        while True:
            placed[v] = True
            vertices[filled] = members[v]
            filled += 1
            if filled - begin == b:
                break
            spent += starts[v + 1] - starts[v]
            for e in range(starts[v], starts[v + 1]):
                u = targets[e]
                if not placed[u]:
                    if score[u] == 0:
                        near[n_near] = u
                        n_near += 1
                    score[u] += sums[e]
            v = most_akin(score, placed, near, n_near)
            if v < 0:
                break
        for i in range(n_near):
            score[near[i]] = 0
        sizes[groups] = filled - begin
        groups += 1
    return vertices, sizes[:groups], spent


@kernel
def _heaviest_first(starts: Any, targets: Any, sums: Any) -> Any:  # pragma: no cover - compiled
    """Return both ends of every edge, in the order of falling weight, ties by the lower end."""
    m = starts.size - 1
    heads, weights = np.empty(targets.size // 2, np.uint32), np.empty(targets.size // 2, np.int64)
    tails, n = np.empty(targets.size // 2, np.uint32), 0
    for i in range(m):
        for e in range(starts[i], starts[i + 1]):
            if targets[e] > i:
                heads[n], tails[n], weights[n] = i, targets[e], -np.int64(sums[e])
                n += 1
    order = np.argsort(weights[:n], kind="mergesort")
    return heads[order], tails[order]
