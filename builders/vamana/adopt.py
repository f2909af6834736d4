"""Normalization of another program's neighbour lists: nearest first, without repetitions or the vertex itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.vamana.prune import sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances
from indexmill.reader.threads import map_blocks

#: Vertices of a task.
_BLOCK = 8192


def adopt_lists(
    vectors: NDArray[Any], neighbours: NDArray[np.uint32], degrees: NDArray[np.int32], threads: int = 1
) -> int:
    """Sort every list by (distance, id), and remove repeated neighbours and the vertex itself, in place.

    Time: one distance an edge. Memory: independent of the size of the graph.

    Parameters
    ----------
    vectors : float32, float16, uint8 or int8 array, shape (n, dim)
    neighbours : uint32 array, shape (n, R)
    degrees : int32 array, shape (n,)

    Returns
    -------
    int
        Number of entries removed.
    """
    rows = as_bits(vectors)

    def block(first: int, last: int) -> int:
        return int(_adopt_rows(rows, neighbours, degrees, first, last))

    return sum(map_blocks(block, len(degrees), _BLOCK, threads))


@kernel
def _adopt_rows(
    vectors: Any, neighbours: Any, degrees: Any, first: int, last: int
) -> int:  # pragma: no cover - compiled
    distances = np.empty(neighbours.shape[1], np.float32)
    taken = 0
    for v in range(first, last):
        ids = neighbours[v]
        n = 0
        for j in range(degrees[v]):
            if ids[j] != v:
                ids[n] = ids[j]
                n += 1
        squared_distances(vectors, v, vectors, ids, n, distances)
        m = sort_candidates(ids, distances, n)
        taken += degrees[v] - m
        degrees[v] = m
        for j in range(m, ids.size):
            ids[j] = 0
    return taken
