"""Vamana (DiskANN section 2), batch-synchronous, so that the graph does not depend on the number of threads.

Vertices are inserted in a random order, batch by batch (see `builders.vamana.insert`).

Memory: the vectors, ``4 * 1.3 R`` bytes a vertex for the graph, 16 bytes a vertex for bookkeeping, and the edges of a
batch.

Deviations from the paper:

- One pass at the given alpha by default. With two passes, the first has alpha 1, as in the paper.
- The prune compares squared distances (see `builders.vamana.prune`).
- Lists may grow to 1.3 R before they are pruned, as in DiskANN's code.
- A last step links vertices that the medoid cannot reach (see `builders.vamana.connect`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.vamana.connect import connect_unreachable
from indexmill.builders.vamana.graph import Graph, Growing, VamanaParameters
from indexmill.builders.vamana.insert import insert_vertices
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances
from indexmill.reader.threads import run_blocks

#: Growth of lists before they are pruned back to R: fewer prunes for a little memory.
GRAPH_SLACK = 1.3
#: Vertices of a task.
_BLOCK = 512


def build_vamana(
    vectors: NDArray[Any],
    entry: int,
    parameters: VamanaParameters,
    *,
    seed: int,
    codes: NDArray[np.uint8] | None = None,
    threads: int = 1,
    advance: Callable[[int], None] = lambda vertices: None,
) -> Graph:
    """Build a Vamana graph.

    Parameters
    ----------
    vectors : float32, float16, uint8 or int8 array, shape (n_vectors, dim), C-contiguous
    entry : int
        Vertex where searches start: the medoid.
    parameters : VamanaParameters
    seed : int
        Decides the order of insertion.
    codes : uint8 array, shape (n_vectors, dim), optional
        See `builders.vamana.insert.insert_vertices`.
    advance : callable
        Called after each batch of each pass with the number of vertices inserted.

    Returns
    -------
    Graph
        The same for every number of threads.
    """
    vectors, n, r = as_bits(vectors), len(vectors), parameters.max_degree
    neighbours = np.zeros((n, list_capacity(r)), np.uint32)
    degrees = np.zeros(n, np.int32)
    order = np.arange(n, dtype=np.uint32)
    np.random.default_rng(seed).shuffle(order)
    growing = Growing(vectors, neighbours, degrees)
    for alpha in parameters.alphas:
        with_alpha = replace(parameters, alpha=alpha)
        insert_vertices(*growing, order, entry, with_alpha, codes=codes, threads=threads, advance=advance)
    prune_long_lists(growing, parameters, threads)
    neighbours = _compact(neighbours, degrees, r)
    sort_lists(vectors, neighbours, degrees, threads)
    added = connect_unreachable(vectors, neighbours, degrees, entry, parameters.build_list_size)
    return Graph(neighbours, degrees, entry, added)


def list_capacity(max_degree: int) -> int:
    """Return the columns of a growing graph's neighbour array, whose lists outgrow R before they are pruned."""
    return max(max_degree + 1, int(GRAPH_SLACK * max_degree))


def prune_long_lists(growing: Growing, p: VamanaParameters, threads: int) -> None:
    """Prune every list that is longer than R to R."""
    long = np.flatnonzero(growing.degrees > p.max_degree)

    def block(first: int, last: int) -> None:
        _prune_rows(*growing, long[first:last], p.max_degree, p.rule)

    run_blocks(block, len(long), _BLOCK, threads)


@kernel
def _prune_rows(
    vectors: Any, neighbours: Any, degrees: Any, rows: Any, max_degree: int, rule: PruneRule
) -> None:  # pragma: no cover - compiled
    cap = neighbours.shape[1]
    ids, distances = np.empty(cap, np.uint32), np.empty(cap, np.float32)
    for v in rows:
        n = np.int64(degrees[v])
        ids[:n] = neighbours[v, :n]
        squared_distances(vectors, v, vectors, ids, n, distances)
        n = sort_candidates(ids, distances, n)
        degrees[v] = robust_prune(vectors, ids, distances, n, max_degree, rule, neighbours[v])


def _compact(
    neighbours: NDArray[np.uint32], degrees: NDArray[np.int32], max_degree: int
) -> NDArray[np.uint32]:
    """Return the lists in `max_degree` columns, filled up with zeros, in the memory of the wider array."""
    n = len(neighbours)
    flat = neighbours.reshape(-1)
    _move_rows(flat, degrees, neighbours.shape[1], max_degree)
    return flat[: n * max_degree].reshape(n, max_degree)


@kernel
def _move_rows(flat: Any, degrees: Any, cap: int, max_degree: int) -> None:  # pragma: no cover - compiled
    for v in range(degrees.size):
        for j in range(max_degree):
            flat[v * max_degree + j] = flat[v * cap + j] if j < degrees[v] else 0


def sort_lists(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    threads: int = 1,
    rows: NDArray[np.int64] | None = None,
) -> None:
    """Sort every list, or those of `rows`, by (distance, id): layouts rely on this order."""

    def block(first: int, last: int) -> None:
        chosen = np.arange(first, last) if rows is None else rows[first:last]
        _sort_rows(vectors, neighbours, degrees, chosen)

    run_blocks(block, len(degrees) if rows is None else len(rows), 16 * _BLOCK, threads)


@kernel
def _sort_rows(vectors: Any, neighbours: Any, degrees: Any, rows: Any) -> None:  # pragma: no cover - compiled
    distances = np.empty(neighbours.shape[1], np.float32)
    for v in rows:
        squared_distances(vectors, v, vectors, neighbours[v], degrees[v], distances)
        sort_candidates(neighbours[v], distances, np.int64(degrees[v]))
