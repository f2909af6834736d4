"""Unite the neighbour lists that several shard graphs hold for one vertex."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.distances import squared_distances
from indexmill.builders.prune import prune_work, robust_prune, sort_candidates


def unite_lists(
    vectors: NDArray[Any],
    vertices: NDArray[np.uint32],
    lists: NDArray[Any],
    first: int,
    last: int,
    max_degree: int,
    alpha: float,
) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Return one list for each vertex from `first` to `last`, robust-pruned to `max_degree`.

    Parameters
    ----------
    vectors : uint8 or float32 array, shape (n_vertices, dim)
    vertices : uint32 array, shape (m,), ascending
        Owner of each list; a vertex may own several, or none.
    lists : uint32 array, shape (m, R)
        Neighbours; an entry equal to the owner is padding.

    Returns
    -------
    neighbours : uint32 array, shape (last - first, max_degree)
    degrees : int32 array, shape (last - first,)
    """
    neighbours = np.zeros((last - first, max_degree), np.uint32)
    degrees = np.zeros(last - first, np.int32)
    bounds = np.searchsorted(vertices, np.arange(first, last + 1))
    _unite(vectors, lists, bounds, first, alpha, neighbours, degrees)
    return neighbours, degrees


@njit(nogil=True, cache=True)
def _unite(
    vectors: Any, lists: Any, bounds: Any, first: int, alpha: float, neighbours: Any, degrees: Any
) -> None:  # pragma: no cover - compiled
    most = 1
    for i in range(degrees.size):
        most = max(most, (bounds[i + 1] - bounds[i]) * lists.shape[1])
    ids, distances, work = np.empty(most, np.uint32), np.empty(most, np.float32), prune_work(most)
    for i in range(degrees.size):
        v = first + i
        n = 0
        for row in range(bounds[i], bounds[i + 1]):
            for j in range(lists.shape[1]):
                if lists[row, j] != v:
                    ids[n] = lists[row, j]
                    n += 1
        squared_distances(vectors, v, vectors, ids, n, distances)
        n = sort_candidates(ids, distances, n)
        degrees[i] = robust_prune(vectors, ids, distances, n, neighbours.shape[1], alpha, neighbours[i], work)
