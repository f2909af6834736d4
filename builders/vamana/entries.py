"""Entry vertices of searches: the medoid, and query-sensitive ones (DiskANN++ section III)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.vamana.graph import Graph
from indexmill.builders.vamana.greedy import search_rows
from indexmill.reader.threads import run_blocks

#: Least vertices for each centroid; more centroids would cost more to scan than they save.
_VERTICES_PER_ENTRY = 16
#: Candidates of the search for the vertex nearest to a centroid.
_LIST_SIZE = 100
#: Centroids of a task.
_BLOCK = 32


def n_entries(wanted: int, n_vertices: int) -> int:
    """Return the number of centroids to fit: `wanted`, but at most one for 16 vertices."""
    return max(1, min(wanted, n_vertices // _VERTICES_PER_ENTRY))


def medoid(vectors: NDArray[Any], mean: NDArray[np.float64], block_bytes: int = 8 << 20) -> int:
    """Return the row of `vectors` (n_vectors, dim) nearest to `mean` (dim,), ties by the smaller row."""
    best, at = np.inf, 0
    block = max(1, block_bytes // (4 * vectors.shape[1]))
    for first in range(0, len(vectors), block):
        rows = vectors[first : first + block].astype(np.float32) - mean.astype(np.float32)
        distances = np.einsum("ij,ij->i", rows, rows)
        row = int(distances.argmin())
        if distances[row] < best:
            best, at = float(distances[row]), first + row
    return at


def entry_vertices(
    vectors: NDArray[Any], graph: Graph, centroids: NDArray[np.float32], threads: int = 1
) -> NDArray[np.uint32]:
    """Return the vertex nearest to each centroid, found by a search of the graph, as in the paper.

    Parameters
    ----------
    vectors : float32, float16, uint8 or int8 array, shape (n_vertices, dim)
    centroids : float32 array, shape (c, dim)
        Rounded to the vectors' type for the search.
    threads : int
        Does not change the result.

    Returns
    -------
    uint32 array, shape (c,)
    """
    points: NDArray[Any] = centroids
    if np.issubdtype(vectors.dtype, np.integer):
        limits = np.iinfo(vectors.dtype)
        points = np.clip(np.rint(centroids), limits.min, limits.max)
    rows, points = as_bits(vectors), as_bits(points.astype(vectors.dtype))
    found = np.full((len(points), 1), graph.entry, np.uint32)

    def block(first: int, last: int) -> None:
        search_rows(
            points[first:last],
            rows,
            graph.neighbours,
            graph.degrees,
            graph.entry,
            _LIST_SIZE,
            found[first:last],
        )

    run_blocks(block, len(points), _BLOCK, threads)
    return found[:, 0]
