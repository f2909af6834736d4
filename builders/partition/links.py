"""Edges between clusters that are far from each other: a small graph of sampled vertices, added to the lists.

Leaves hold near vectors, so the lists of a cluster that is far from all others stay inside it, and a search that starts
in another cluster does not find a way there. Sampled vertices of every cluster, and the entry, are joined by a Vamana
graph of their own. Its edges enter the lists of these vertices, except edges that a neighbour makes needless: one
which is nearer to the other end. Where clusters touch, most edges are needless.

A vertex is sampled if its rank, a hash of its id, is at most the rank of every vertex with an edge to it. So any set
of vertices that no edge enters has a sampled vertex, unless more than an eighth of all would be sampled. Ranks follow
the edges in one sweep over the lists in order, so that a graph on storage is read from front to back. Vectors that
equal an earlier one have no edges yet (`builders.partition.equals`), and are not sampled.

A list of candidates holds few clusters if they are small, and a search needs edges to many others to leave them. So
where a quarter of the sampled vertices need half of their edges, ranks reach fewer neighbours, and a denser sample is
joined instead.

Memory: `link_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.partition.equals import EQUALS_BYTES, repeated
from indexmill.builders.streams import LINKS
from indexmill.builders.vamana.build import build_vamana, list_capacity
from indexmill.builders.vamana.enter import enter_edges
from indexmill.builders.vamana.graph import Graph, VamanaParameters
from indexmill.builders.vamana.prune import PruneRule
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances

#: Neighbours that the rank of a vertex reaches if its list is short, as lists in small clusters are; else all.
_NEAREST = 24
#: Those that it reaches in any list of a dense sample.
_DENSE = 12
#: Most sampled vertices, as a divisor of n: short lists, as those of small clusters, have about n / 10.
_SHARE = 8
#: R, L and saturation of the graph of sampled vertices, and of a dense sample, where all edges are to find places in
#: lists of R = 32.
_LINKS, _DENSE_LINKS = (32, 48, False), (24, 100, True)
#: An edge is needless if a neighbour is nearer to its other end by this ratio of squared distances.
_NEARER = np.float32(1.1)
#: Clusters are small and distant if more than one sampled vertex of so many needs at least half of its edges.
_FEW = 4


def link_bytes(n: int) -> int:
    """Return the peak memory of `link_clusters` for `n` vertices, without rows of sampled vertices, in bytes."""
    degree = _LINKS[0]
    sampled = 4 * (list_capacity(degree) + degree // 4) + 40
    return n * (4 + EQUALS_BYTES + sampled // _SHARE)


def link_clusters(
    vectors: NDArray[Any],
    firsts: NDArray[np.uint32],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    entry: int,
    rule: PruneRule,
    rows_of: Callable[[NDArray[np.int64]], NDArray[Any]],
    *,
    seed: int,
    threads: int = 1,
) -> int:
    """Add the edges of a graph of sampled vertices to their lists, in place; return their number.

    A list that is full loses neighbours by robust prune, and keeps at least a quarter of its places for them.

    Parameters
    ----------
    vectors : uint8, float16 or float32 array, shape (n_vertices, dim)
        May be a mapped file: only vectors of sampled vertices and of their neighbours are read.
    firsts : uint32 array, shape (n_vertices,)
        As `equals.equal_rows` returns them.
    neighbours, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
        Lists in ascending order of (distance, id), before and after.
    entry : int
        Joined as if it had been sampled, or the first vertex that it equals.
    rows_of : function
        Returns the vectors of given vertices, ascending and at most an eighth of all and one: shape (m, dim),
        C-contiguous. It is called once or twice; what it returned first is no longer used at the second call.
    seed : int
        Decides the ranks and the order of insertion.
    """
    rows, left_out = as_bits(vectors), repeated(firsts)
    entry = min(entry, int(firsts[entry]))  # the first of its equals

    def joined(dense: bool) -> tuple[NDArray[np.int64], Graph, bool]:
        """Return sampled vertices, the edges between them that are needed, and whether clusters are distant."""
        sampled = sampled_vertices(neighbours, degrees, left_out, entry, seed, dense=dense)
        first = int(np.searchsorted(sampled, entry))
        degree, list_size, saturate = _DENSE_LINKS if dense else _LINKS
        degree = min(degree, neighbours.shape[1])
        parameters = VamanaParameters(degree, list_size, rule.alpha, saturate=saturate)
        links = build_vamana(rows_of(sampled), first, parameters, seed=seed, threads=threads)
        before = links.degrees.copy()
        _drop_needless(rows, neighbours, degrees, sampled, links.neighbours, links.degrees)
        apart = int(np.count_nonzero(2 * links.degrees >= before))
        return sampled, links, apart * _FEW > len(sampled)

    sampled, links, distant = joined(dense=False)
    if distant and neighbours.shape[1] > _DENSE:  # else both samples are the same
        del sampled, links  # frees memory
        sampled, links, _ = joined(dense=True)
    return int(_enter(rows, neighbours, degrees, sampled, links.neighbours, links.degrees, rule))


def sampled_vertices(
    neighbours: NDArray[np.uint32], degrees: NDArray[np.int32], left_out: NDArray[np.bool_], entry: int, seed: int,
    *, dense: bool = False,
) -> NDArray[np.int64]:  # fmt: skip
    """Return vertices of every cluster, if they are at most an eighth of all, else a part; and the entry; ascending.

    Parameters
    ----------
    neighbours, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
    left_out : bool array, shape (n_vertices,)
        Vertices without edges that are not sampled.
    entry : int
    seed : int
        Decides the ranks.
    dense : bool
        Whether ranks reach fewer neighbours, so that more vertices are sampled.
    """
    n, most = len(degrees), neighbours.shape[1]
    state = int(np.random.default_rng([seed, LINKS]).integers(1 << 62))
    short, full = (_DENSE, _DENSE) if dense else (_NEAREST, most)
    sampled = _sampled(neighbours, degrees, left_out, short, full, np.uint64(state))
    if len(sampled) > n // _SHARE:
        ranks = _ranks(sampled, np.uint64(state))
        sampled = sampled[np.argsort(ranks, kind="stable")[: n // _SHARE]]
    return np.unique(np.append(sampled, entry))


@kernel
def _rank(v: Any, state: Any) -> Any:  # pragma: no cover - compiled
    """Return a hash of 32 bits (the finalizer of splitmix64)."""
    mixed = state + np.uint64(v) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint32((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(32))


@kernel
def _ranks(vertices: Any, state: Any) -> Any:  # pragma: no cover - compiled
    ranks = np.empty(vertices.size, np.uint32)
    for i in range(vertices.size):
        ranks[i] = _rank(vertices[i], state)
    return ranks


@kernel
def _sampled(
    neighbours: Any, degrees: Any, left_out: Any, short: int, full: int, state: Any
) -> Any:  # pragma: no cover - compiled
    """Return the vertices whose rank no vertex that reaches them undercuts, ascending, int64.

    A rank reaches at most the first `full` neighbours in a full list, and the first `short` in any other.
    """
    least = np.full(degrees.size, np.uint32(0xFFFFFFFF), np.uint32)
    for v in range(degrees.size):
        rank = _rank(v, state)
        for j in range(min(degrees[v], full if degrees[v] == neighbours.shape[1] else short)):
            u = np.int64(neighbours[v, j])
            least[u] = min(least[u], rank)
    count = 0
    for v in range(degrees.size):
        if _rank(v, state) <= least[v] and not left_out[v]:
            count += 1
    sampled = np.empty(count, np.int64)
    count = 0
    for v in range(degrees.size):
        if _rank(v, state) <= least[v] and not left_out[v]:
            sampled[count] = v
            count += 1
    return sampled


@kernel
def _drop_needless(
    vectors: Any, neighbours: Any, degrees: Any, sampled: Any, links: Any, counts: Any
) -> None:  # pragma: no cover - compiled
    """Make the places of sampled vertices in `links` their ids, and drop edges that are needless, in place."""
    apart, lengths = np.empty(neighbours.shape[1], np.float32), np.empty(links.shape[1], np.float32)
    for i in range(sampled.size):
        v, n, m = sampled[i], np.int64(degrees[sampled[i]]), np.int64(counts[i])
        ends = links[i]
        for j in range(m):
            ends[j] = sampled[ends[j]]
        squared_distances(vectors, v, vectors, ends, m, lengths)
        kept = 0
        for j in range(m):
            squared_distances(vectors, np.int64(ends[j]), vectors, neighbours[v], n, apart)
            if not _is_needless(lengths[j], apart, n):
                ends[kept] = ends[j]
                kept += 1
        counts[i] = kept


@kernel
def _enter(
    vectors: Any, neighbours: Any, degrees: Any, sampled: Any, links: Any, counts: Any, rule: PruneRule
) -> int:  # pragma: no cover - compiled
    """Enter the edges that are left into the lists; return their number."""
    most, added = neighbours.shape[1], 0
    ids, distances = np.empty(most, np.uint32), np.empty(most, np.float32)
    chosen = np.empty(most, np.uint32)
    for i in range(sampled.size):
        v, n = sampled[i], np.int64(degrees[sampled[i]])
        ids[:n] = neighbours[v, :n]
        kept = min(np.int64(counts[i]), max(most - n, most * 3 // 4))
        enter_edges(vectors, v, ids, n, links[i], kept, rule, distances, chosen, neighbours, degrees)
        added += kept
    return added


@kernel
def _is_needless(length: Any, apart: Any, n: int) -> bool:  # pragma: no cover - compiled
    """Return whether one of the first `n` vertices is nearer to an edge's end; `apart`: their distances to it."""
    nearest = apart[0] if n > 0 else length
    for j in range(1, n):
        nearest = min(nearest, apart[j])
    return n > 0 and _NEARER * nearest <= length
