"""Vamana (DiskANN section 2), batch-synchronous, so that the graph does not depend on the number of threads.

Vertices are inserted in a random order in batches that double in size, as in ParlayANN. Within a batch
every vertex searches the graph as it stood before the batch and prunes what it visited; then the reverse
edges of the whole batch are grouped by target with one sort, and each target appends or prunes. No edge is
ever locked.

Memory: the vectors, 4 bytes times ``1.3 R`` a vertex for the growing graph, and a batch's edges.
Deviations from the paper: one pass, at the given alpha (two are possible; see `VamanaParameters.passes`);
squared distances in the prune (see `builders.prune`); lists may grow to 1.3 R before they are pruned, as in
DiskANN's code; a last step links vertices that the medoid cannot reach (see `builders.connect`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.connect import connect_unreachable
from indexmill.builders.distances import squared_distances
from indexmill.builders.greedy import greedy_search, scratch
from indexmill.builders.parallel import map_blocks
from indexmill.builders.prune import prune_work, robust_prune, sort_candidates

#: Lists may grow by this factor before they are pruned back to R: fewer prunes for a little memory.
GRAPH_SLACK = 1.3
#: A batch is at most this share of the vertices: larger ones lose quality (at 2%, 1.5% more distances for the same
#: recall on a million SIFT vectors), smaller ones parallelism.
MAX_BATCH_SHARE = 0.005
#: Vertices a thread takes at a time.
_BLOCK = 512


@dataclass(frozen=True)
class VamanaParameters:
    """Shape of the graph.

    Attributes
    ----------
    max_degree : int
        R, at least 2.
    build_list_size : int
        L, candidates of the search that feeds the prune.
    alpha : float
        Slack of the prune, at least 1.
    passes : int
        Times every vertex is inserted.
    """

    max_degree: int
    build_list_size: int
    alpha: float
    passes: int = 1


@dataclass(frozen=True)
class Graph:
    """A directed graph on ``n`` vertices.

    Attributes
    ----------
    neighbours : uint32 array, shape (n, R)
        Row v holds ``degrees[v]`` distinct neighbours of v, nearest first (ties by id), then zeros.
    degrees : int32 array, shape (n,)
    entry : int
        Vertex from which every other one can be reached.
    """

    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]
    entry: int


def build_vamana(
    vectors: NDArray[Any],
    entry: int,
    parameters: VamanaParameters,
    *,
    seed: int,
    threads: int = 1,
    advance: Callable[[int], None] = lambda vertices: None,
) -> Graph:
    """Build a Vamana graph.

    Parameters
    ----------
    vectors : uint8 or float32 array, shape (n_vectors, dim), C-contiguous
    entry : int
        Where searches start: the medoid.
    seed : int
        Decides the order of insertion.
    advance : callable
        Told the number of vertices inserted after each batch.

    Returns
    -------
    Graph
        The same for every number of threads.
    """
    n = len(vectors)
    r = parameters.max_degree
    cap = max(r + 1, int(GRAPH_SLACK * r))
    neighbours = np.zeros((n, cap), np.uint32)
    degrees = np.zeros(n, np.int32)
    order = np.random.default_rng(seed).permutation(n).astype(np.uint32)
    for _ in range(parameters.passes):
        done = 0
        for size in _batch_sizes(n):
            batch = order[done : done + size]
            chosen, counts = _choose_neighbours(
                vectors, neighbours, degrees, batch, entry, parameters, threads
            )
            neighbours[batch, :r] = chosen
            degrees[batch] = counts
            _add_reverse_edges(vectors, neighbours, degrees, batch, chosen, counts, parameters, threads)
            done += size
            advance(size)
    _prune_long_lists(vectors, neighbours, degrees, parameters, threads)
    neighbours = np.ascontiguousarray(neighbours[:, :r])
    neighbours[np.arange(r) >= degrees[:, None]] = 0
    connect_unreachable(vectors, neighbours, degrees, entry, parameters.build_list_size)
    sort_lists(vectors, neighbours, degrees, threads)
    return Graph(neighbours, degrees, entry)


def _batch_sizes(n: int) -> list[int]:
    """Sizes 1, 1, 2, 4, ... that add up to `n`: each batch at most what is there already, and at most the cap."""
    most = max(1, int(n * MAX_BATCH_SHARE))
    sizes: list[int] = []
    done = 0
    while done < n:
        sizes.append(min(max(done, 1), most, n - done))
        done += sizes[-1]
    return sizes


def _choose_neighbours(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    batch: NDArray[np.uint32],
    entry: int,
    p: VamanaParameters,
    threads: int,
) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Search and prune for every vertex of `batch`; return their lists (m, R) and degrees (m,)."""
    chosen = np.zeros((len(batch), p.max_degree), np.uint32)
    counts = np.zeros(len(batch), np.int32)

    def block(first: int, last: int) -> None:
        _search_and_prune(
            vectors, neighbours, degrees, batch[first:last], entry,
            p.build_list_size, p.alpha, chosen[first:last], counts[first:last],
        )  # fmt: skip

    for _ in map_blocks(block, len(batch), _BLOCK, threads):
        pass
    return chosen, counts


@njit(nogil=True, cache=True)
def _search_and_prune(
    vectors: Any, neighbours: Any, degrees: Any, batch: Any, entry: int,
    list_size: int, alpha: float, chosen: Any, counts: Any,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    cap = neighbours.shape[1]
    s = scratch(list_size, neighbours)
    most = s.visited_ids.size + cap
    ids, distances, work = np.empty(most, np.uint32), np.empty(most, np.float32), prune_work(most)
    for b in range(batch.size):
        v = np.int64(batch[b])
        _, m, _ = greedy_search(vectors, v, v, vectors, neighbours, degrees, entry, list_size, s)
        ids[:m] = s.visited_ids[:m]
        distances[:m] = s.visited_distances[:m]
        known = np.int64(degrees[v])  # from an earlier pass or as a target of an earlier batch
        if known > 0:
            ids[m : m + known] = neighbours[v, :known]
            squared_distances(vectors, v, vectors, ids[m:], known, distances[m:])
            m += known
        m = sort_candidates(ids, distances, m)
        counts[b] = robust_prune(vectors, ids, distances, m, chosen.shape[1], alpha, chosen[b], work)


def _add_reverse_edges(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    batch: NDArray[np.uint32],
    chosen: NDArray[np.uint32],
    counts: NDArray[np.int32],
    p: VamanaParameters,
    threads: int,
) -> None:
    """Give every chosen neighbour an edge back; targets are independent once edges are sorted by target."""
    real = np.arange(chosen.shape[1]) < counts[:, None]
    sources = np.broadcast_to(batch[:, None], chosen.shape)[real].astype(np.uint64)
    edges = np.sort(chosen[real].astype(np.uint64) << np.uint64(32) | sources)
    targets = (edges >> np.uint64(32)).astype(np.uint32)
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(targets)) + 1, [len(targets)]]).astype(np.int64)
    if len(edges) == 0:
        return

    def block(first: int, last: int) -> None:
        _append_or_prune(vectors, neighbours, degrees, edges, bounds[first : last + 1], p.max_degree, p.alpha)

    for _ in map_blocks(block, len(bounds) - 1, _BLOCK, threads):
        pass


@njit(nogil=True, cache=True)
def _append_or_prune(
    vectors: Any, neighbours: Any, degrees: Any, edges: Any, bounds: Any, max_degree: int, alpha: float
) -> None:  # pragma: no cover - compiled
    cap = neighbours.shape[1]
    most = cap
    for g in range(bounds.size - 1):
        most = max(most, cap + bounds[g + 1] - bounds[g])
    ids, distances, work = np.empty(most, np.uint32), np.empty(most, np.float32), prune_work(most)
    for g in range(bounds.size - 1):
        t = np.int64(edges[bounds[g]] >> np.uint64(32))
        n = np.int64(degrees[t])
        ids[:n] = neighbours[t, :n]
        known = n
        for e in range(bounds[g], bounds[g + 1]):
            source = np.uint32(edges[e] & np.uint64(0xFFFFFFFF))
            there = False
            for j in range(known):
                if ids[j] == source:
                    there = True
                    break
            if not there:
                ids[n] = source
                n += 1
        if n <= cap:
            neighbours[t, known:n] = ids[known:n]
            degrees[t] = n
            continue
        squared_distances(vectors, t, vectors, ids, n, distances)
        n = sort_candidates(ids, distances, n)
        degrees[t] = robust_prune(vectors, ids, distances, n, max_degree, alpha, neighbours[t], work)


def _prune_long_lists(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    p: VamanaParameters,
    threads: int,
) -> None:
    """Bring every list that grew past R back to R."""
    long = np.flatnonzero(degrees > p.max_degree)

    def block(first: int, last: int) -> None:
        _prune_rows(vectors, neighbours, degrees, long[first:last], p.max_degree, p.alpha)

    for _ in map_blocks(block, len(long), _BLOCK, threads):
        pass


@njit(nogil=True, cache=True)
def _prune_rows(
    vectors: Any, neighbours: Any, degrees: Any, rows: Any, max_degree: int, alpha: float
) -> None:  # pragma: no cover - compiled
    cap = neighbours.shape[1]
    ids, distances, work = np.empty(cap, np.uint32), np.empty(cap, np.float32), prune_work(cap)
    for v in rows:
        n = np.int64(degrees[v])
        ids[:n] = neighbours[v, :n]
        squared_distances(vectors, v, vectors, ids, n, distances)
        n = sort_candidates(ids, distances, n)
        degrees[v] = robust_prune(vectors, ids, distances, n, max_degree, alpha, neighbours[v], work)


def sort_lists(
    vectors: NDArray[Any], neighbours: NDArray[np.uint32], degrees: NDArray[np.int32], threads: int = 1
) -> None:
    """Put every list in ascending order of (distance, id), in place: layouts read nearness off the order."""

    def block(first: int, last: int) -> None:
        _sort_rows(vectors, neighbours, degrees, first, last)

    for _ in map_blocks(block, len(degrees), 16 * _BLOCK, threads):
        pass


@njit(nogil=True, cache=True)
def _sort_rows(
    vectors: Any, neighbours: Any, degrees: Any, first: int, last: int
) -> None:  # pragma: no cover
    distances = np.empty(neighbours.shape[1], np.float32)
    for v in range(first, last):
        squared_distances(vectors, v, vectors, neighbours[v], degrees[v], distances)
        sort_candidates(neighbours[v], distances, np.int64(degrees[v]))
