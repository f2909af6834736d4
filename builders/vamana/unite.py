"""Union of the neighbour lists that several shard graphs hold for one vertex."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances


def unite_lists(
    vectors: NDArray[Any],
    vertices: NDArray[np.uint32],
    lists: NDArray[Any],
    first: int,
    last: int,
    max_degree: int,
    rule: PruneRule,
) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Return one list for each vertex from `first` to `last`: its only list, or the robust prune of the union.

    Parameters
    ----------
    vectors : float32, float16, uint8 or int8 array, shape (n_vertices, dim)
        May be a mapped file: only vectors of vertices with several lists, and of their neighbours, are read.
    vertices : uint32 array, shape (m,), ascending
        Owner of each list; a vertex may own several lists, or none.
    lists : uint32 array, shape (m, R)
        Neighbours in ascending order of (distance, id), padded at the end with the owner.

    Returns
    -------
    neighbours : uint32 array, shape (last - first, max_degree)
        In ascending order of (distance, id), padded with zeros.
    degrees : int32 array, shape (last - first,)
    """
    neighbours = np.zeros((last - first, max_degree), np.uint32)
    degrees = np.zeros(last - first, np.int32)
    bounds = np.searchsorted(vertices, np.arange(first, last + 1))
    _unite(as_bits(vectors), lists, bounds, first, rule, neighbours, degrees)
    return neighbours, degrees


@kernel
def _unite(
    vectors: Any, lists: Any, bounds: Any, first: int, rule: PruneRule, neighbours: Any, degrees: Any
) -> None:  # pragma: no cover - compiled
    most = 1
    for i in range(degrees.size):
        most = max(most, (bounds[i + 1] - bounds[i]) * lists.shape[1])
    ids, distances = np.empty(most, np.uint32), np.empty(most, np.float32)
    for i in range(degrees.size):
        v = first + i
        if bounds[i + 1] - bounds[i] == 1:
            degrees[i] = _copy(lists[bounds[i]], v, neighbours[i])
            continue
        n = 0
        for record in range(bounds[i], bounds[i + 1]):
            for j in range(lists.shape[1]):
                if lists[record, j] != v:
                    ids[n] = lists[record, j]
                    n += 1
        squared_distances(vectors, v, vectors, ids, n, distances)
        n = sort_candidates(ids, distances, n)
        chosen = neighbours[i]
        m = robust_prune(vectors, ids, distances, n, chosen.size, rule, chosen)
        squared_distances(vectors, v, vectors, chosen, m, distances)
        degrees[i] = sort_candidates(chosen, distances, m)


@kernel
def _copy(source: Any, owner: int, target: Any) -> Any:  # pragma: no cover - compiled
    """Copy a list up to its padding; return its length."""
    for j in range(source.size):
        if source[j] == owner:
            return j
        target[j] = source[j]
    return source.size
