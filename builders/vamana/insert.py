"""Batch-synchronous insertion into a Vamana graph, so that the graph does not depend on the number of threads.

Batches double in size up to a share of the vertices, as in ParlayANN. Every vertex of a batch searches the graph as it
was before the batch, and prunes the visited vertices. Then the reverse edges of the whole batch are grouped by target
with one sort, and each target appends or prunes. No locks are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.vamana.graph import Growing, VamanaParameters
from indexmill.builders.vamana.greedy import greedy_search, scratch
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances
from indexmill.reader.threads import BlockPool

#: Largest batch, as a share of the vertices: larger batches lose quality (at 2%, 1.5% more distances for the same
#: recall on a million SIFT vectors), smaller ones lose parallelism.
MAX_BATCH_SHARE = 0.005
#: Vertices of a task that searches, and of a task that adds reverse edges: few, because the batches of a small graph
#: are a few hundred vertices, and threads wait for the last task of each batch.
_SEARCHED, _BLOCK = 8, 128


def insert_vertices(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    order: NDArray[np.uint32],
    entry: int,
    parameters: VamanaParameters,
    *,
    codes: NDArray[np.uint8] | None = None,
    present: int = 0,
    changed: NDArray[np.bool_] | None = None,
    threads: int = 1,
    advance: Callable[[int], None] = lambda vertices: None,
) -> int:
    """Insert vertices batch by batch, in place; lists may become longer than R.

    Parameters
    ----------
    vectors : array, shape (n_vectors, dim), C-contiguous
        As `reader.kernels.squared_distances` takes them.
    neighbours, degrees : uint32 array (n_vectors, `list_capacity`) and int32 array (n_vectors,)
        Neighbours that a vertex of `order` already has take part in its prune.
    order : uint32 array, shape (m,)
        Vertices to insert, in order.
    codes : uint8 array, shape (n_vectors, dim), optional
        Compared by searches in place of the vectors; the visited vertices are measured and pruned by vectors.
    present : int
        Number of vertices already in the graph; a batch is no larger than the graph before it.
    changed : bool array, shape (n_vectors,), optional
        Set to true for every vertex whose list changes.

    Returns
    -------
    int
        Distances computed by the searches, without those of the prunes.
    """
    growing = Growing(vectors, neighbours, degrees)
    r, done, distances = parameters.max_degree, 0, 0
    with BlockPool(threads) as pool:
        for size in batch_sizes(present + len(order), present):
            batch = order[done : done + size]
            chosen, counts, computed = _choose_neighbours(growing, codes, batch, entry, parameters, pool)
            neighbours[batch, :r] = chosen
            degrees[batch] = counts
            targets = _add_reverse_edges(growing, batch, chosen, counts, parameters, pool)
            if changed is not None:
                changed[batch] = True
                changed[targets] = True
            done += size
            distances += computed
            advance(size)
    return distances


def batch_sizes(n: int, done: int = 0) -> list[int]:
    """Return batch sizes from `done` to `n` vertices: 1, 1, 2, 4 and so on up to the largest batch."""
    most = max(1, int(n * MAX_BATCH_SHARE))
    sizes: list[int] = []
    while done < n:
        sizes.append(min(max(done, 1), most, n - done))
        done += sizes[-1]
    return sizes


def _choose_neighbours(
    growing: Growing, codes: NDArray[np.uint8] | None, batch: NDArray[np.uint32], entry: int,
    p: VamanaParameters, pool: BlockPool,
) -> tuple[NDArray[np.uint32], NDArray[np.int32], int]:  # fmt: skip
    """Search and prune for every vertex of `batch`; return lists (m, R), degrees (m,) and the number of distances."""
    chosen = np.zeros((len(batch), p.max_degree), np.uint32)
    counts = np.zeros(len(batch), np.int32)

    def block(first: int, last: int) -> int:
        return int(_search_and_prune(
            growing.vectors, growing.vectors if codes is None else codes, codes is not None,
            growing.neighbours, growing.degrees, batch[first:last], entry,
            p.build_list_size, p.rule, chosen[first:last], counts[first:last],
        ))  # fmt: skip

    return chosen, counts, sum(pool.run(block, len(batch), _SEARCHED))


@kernel
def _search_and_prune(
    vectors: Any, searched: Any, coded: bool, neighbours: Any, degrees: Any, batch: Any, entry: int,
    list_size: int, rule: PruneRule, chosen: Any, counts: Any,
) -> int:  # pragma: no cover - compiled  # fmt: skip
    cap = neighbours.shape[1]
    s = scratch(list_size, neighbours)
    most = s.visited_ids.size + cap
    ids, distances = np.empty(most, np.uint32), np.empty(most, np.float32)
    total = 0
    for b in range(batch.size):
        v = np.int64(batch[b])
        _, m, computed = greedy_search(searched, v, v, searched, neighbours, degrees, entry, list_size, s)
        total += computed
        ids[:m] = s.visited_ids[:m]
        if coded:
            squared_distances(vectors, v, vectors, ids, m, distances)
            total += m
        else:
            distances[:m] = s.visited_distances[:m]
        known = np.int64(degrees[v])  # from an earlier pass or as a target of an earlier batch
        if known > 0:
            ids[m : m + known] = neighbours[v, :known]
            squared_distances(vectors, v, vectors, ids[m:], known, distances[m:])
            m += known
            total += known
        m = sort_candidates(ids, distances, m)
        counts[b] = robust_prune(vectors, ids, distances, m, chosen.shape[1], rule, chosen[b])
    return total


def _add_reverse_edges(
    growing: Growing, batch: NDArray[np.uint32], chosen: NDArray[np.uint32], counts: NDArray[np.int32],
    p: VamanaParameters, pool: BlockPool,
) -> NDArray[np.uint32]:  # fmt: skip
    """Add the reverse edge of every chosen neighbour, and return those neighbours, which are independent tasks."""
    real = np.arange(chosen.shape[1]) < counts[:, None]
    sources = np.broadcast_to(batch[:, None], chosen.shape)[real].astype(np.uint64)
    edges = np.sort(chosen[real].astype(np.uint64) << np.uint64(32) | sources)
    targets = (edges >> np.uint64(32)).astype(np.uint32)
    if len(edges) == 0:
        return targets
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(targets)) + 1, [len(targets)]]).astype(np.int64)

    def block(first: int, last: int) -> None:
        _append_or_prune(*growing, edges, bounds[first : last + 1], p.max_degree, p.rule)

    pool.run(block, len(bounds) - 1, _BLOCK)
    return targets[bounds[:-1]]


@kernel
def _append_or_prune(
    vectors: Any, neighbours: Any, degrees: Any, edges: Any, bounds: Any, max_degree: int, rule: PruneRule
) -> None:  # pragma: no cover - compiled
    cap = neighbours.shape[1]
    most = cap
    for g in range(bounds.size - 1):
        most = max(most, cap + bounds[g + 1] - bounds[g])
    ids, distances = np.empty(most, np.uint32), np.empty(most, np.float32)
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
        degrees[t] = robust_prune(vectors, ids, distances, n, max_degree, rule, neighbours[t])
