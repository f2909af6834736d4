"""Edges between the vectors that are nearest to one query (RoarGraph, Chen et al., 2024, section 4).

The nearest vectors of a query that is unlike all vectors, as a question is unlike images, are not near each other: a
search that has found one of them meets the others only after many detours. A sample of queries says which vectors are
wanted together. In the paper, queries and their nearest vectors are a bipartite graph, which is projected onto the
vectors: the vectors of a query become neighbours of each other, pruned as all lists are.

Deviations from the paper: the projection does not replace a graph of the vectors but enters its lists, where it gets a
part of the places, so that queries like the vectors find as much as before. The vectors of a query are linked to all
others, not only to its nearest one. A vector which is near to many queries takes those for which it ranks highest.

Memory: `bridge_bytes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.vamana.enter import enter_edges
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances
from indexmill.reader.threads import run_blocks

#: Share of the places of a list that edges of queries may take.
SHARE = 0.5
#: Rule of their prune: no slack, as in the paper, but places that it leaves free are filled, which reads 7% less.
_RULE = PruneRule(1.0, True)
#: Most queries of a vertex, of which each brings its other vectors.
_MOST_QUERIES = 128
#: Vertices of a task.
_BLOCK = 512


def bridge_bytes(n: int, n_queries: int, k: int, max_degree: int, threads: int) -> int:
    """Return the peak memory of `add_bridges` for `n` vertices with `nearest`, without rows and lists, in bytes."""
    return 16 * (n + 1) + 8 * n_queries * k + threads * 8 * (_MOST_QUERIES * k + 2 * max_degree)


def add_bridges(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    nearest: NDArray[np.uint32],
    rule: PruneRule,
    threads: int = 1,
) -> int:
    """Add edges between the vectors of each query, in place; return their number.

    A list that is full loses neighbours by robust prune, at most the share `SHARE` of its places.

    Parameters
    ----------
    vectors : float32, float16, uint8 or int8 array, shape (n_vertices, dim)
        May be a mapped file: only vectors that are near to queries, and of their neighbours, are read.
    neighbours, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
        Lists in ascending order of (distance, id), before and after.
    nearest : uint32 array, shape (n_queries, k)
        The vertices nearest to each query, nearest first.
    rule : PruneRule
        Of the lists.
    threads : int
        Does not change the result.
    """
    starts, queries = queries_of(nearest, len(degrees))
    rows, places = as_bits(vectors), bridge_places(neighbours.shape[1])

    def block(first: int, last: int) -> int:
        return int(_bridge(rows, neighbours, degrees, nearest, starts, queries, first, last, places, rule))

    return sum(run_blocks(block, len(degrees), _BLOCK, threads))


def bridge_places(max_degree: int) -> int:
    """Return how many places of a list of `max_degree` neighbours bridges may take."""
    return max(1, int(SHARE * max_degree))


@kernel
def queries_of(nearest: Any, n: int) -> Any:  # pragma: no cover - compiled
    """Return bounds, int64 (n + 1,), and queries of each vertex, uint32, in the order of (rank of the vertex, id)."""
    starts = np.zeros(n + 1, np.int64)
    for q in range(nearest.shape[0]):
        for j in range(nearest.shape[1]):
            starts[nearest[q, j] + 1] += 1
    for v in range(n):
        starts[v + 1] += starts[v]
    at, queries = starts[:n].copy(), np.empty(nearest.size, np.uint32)
    for j in range(nearest.shape[1]):
        for q in range(nearest.shape[0]):
            v = nearest[q, j]
            queries[at[v]] = q
            at[v] += 1
    return starts, queries


@kernel
def _bridge(
    vectors: Any, neighbours: Any, degrees: Any, nearest: Any, starts: Any, queries: Any, first: int, last: int,
    places: int, rule: PruneRule,
) -> int:  # pragma: no cover - compiled  # fmt: skip
    most, added = neighbours.shape[1], 0
    ids = np.empty(most_candidates(nearest, most), np.uint32)
    distances = np.empty(ids.size, np.float32)
    bridges, kept = np.empty(most, np.uint32), np.empty(most, np.uint32)
    for v in range(first, last):
        n_bridges = bridges_of(vectors, v, nearest, starts, queries, places, ids, distances, bridges)
        if n_bridges == 0:
            continue
        n = 0
        for j in range(degrees[v]):
            if not is_among(neighbours[v, j], bridges, n_bridges):
                ids[n] = neighbours[v, j]
                n += 1
        added += n_bridges - (degrees[v] - n)
        enter_edges(vectors, v, ids, n, bridges, n_bridges, rule, distances, kept, neighbours, degrees)
    return added


@kernel
def most_candidates(nearest: Any, max_degree: int) -> int:  # pragma: no cover - compiled
    """Return the room that `bridges_of` needs for candidates, and a list for neighbours."""
    room: int = _MOST_QUERIES * nearest.shape[1] + max_degree
    return room


@kernel
def bridges_of(
    vectors: Any,
    v: int,
    nearest: Any,
    starts: Any,
    queries: Any,
    places: int,
    ids: Any,
    distances: Any,
    bridges: Any,
) -> int:  # pragma: no cover - compiled
    """Write the vertices that bridges of `v` lead to into `bridges`, at most `places`; return their number.

    Parameters
    ----------
    nearest, starts, queries : arrays
        The vertices nearest to each query, and what `queries_of` made of them.
    ids, distances : uint32 and float32 arrays, shape (`most_candidates`,)
        Scratch.
    """
    m = 0
    for at in range(starts[v], min(starts[v + 1], starts[v] + _MOST_QUERIES)):
        for j in range(nearest.shape[1]):
            u = nearest[queries[at], j]
            if u != v:
                ids[m] = u
                m += 1
    if m == 0:
        return 0
    squared_distances(vectors, v, vectors, ids, m, distances)
    m = sort_candidates(ids, distances, m)
    chosen: int = robust_prune(vectors, ids, distances, m, places, _RULE, bridges)
    return chosen


@kernel
def is_among(u: Any, ids: Any, n: int) -> bool:  # pragma: no cover - compiled
    """Return whether `u` is one of the first `n` of `ids`."""
    at = 0
    while at < n and ids[at] != u:
        at += 1
    return at < n
