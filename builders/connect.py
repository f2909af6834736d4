"""Link every vertex that the entry vertex cannot reach.

Robust prune gives no such promise: duplicates, far outliers and full lists leave vertices without an edge
that leads to them, and a search would never return them. NSG repairs its graph in the same spirit.

A breadth-first tree from the entry marks what is reachable. Each unreachable vertex u, in id order, is
searched for; the nearest visited vertex with room in its list gets an edge to u, else the nearest whose list
holds an edge outside the tree gives its last such edge up. Tree edges are never removed, so nothing that was
reachable is lost, and a leaf of the tree always has an edge to give.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.greedy import greedy_search, scratch


def connect_unreachable(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    entry: int,
    list_size: int,
) -> int:
    """Make every vertex reachable from `entry`, changing the graph in place.

    Parameters
    ----------
    vectors : uint8 or float32 array, shape (n_vertices, dim)
    neighbours, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
    list_size : int
        Candidates of the search for a vertex to link from.

    Returns
    -------
    int
        Number of edges added.
    """
    return int(_connect(vectors, neighbours, degrees, entry, list_size))


@njit(nogil=True, cache=True)
def _spread(
    neighbours: Any, degrees: Any, parent: Any, root: int, queue: Any
) -> Any:  # pragma: no cover - compiled
    """Extend the tree breadth-first from `root`; returns the last vertex reached, a leaf."""
    queue[0] = root
    head, tail = 0, 1
    while head < tail:
        v = np.int64(queue[head])
        head += 1
        for j in range(degrees[v]):
            u = np.int64(neighbours[v, j])
            if parent[u] < 0:
                parent[u] = v
                queue[tail] = u
                tail += 1
    return np.int64(queue[tail - 1])


@njit(nogil=True, cache=True)
def _link(
    neighbours: Any, degrees: Any, parent: Any, w: int, u: int, may_replace: bool
) -> bool:  # pragma: no cover
    """Add the edge w -> u if `w` has room or, if allowed, an edge outside the tree to give up."""
    if degrees[w] < neighbours.shape[1]:
        neighbours[w, degrees[w]] = u
        degrees[w] += 1
        return True
    if may_replace:
        for j in range(degrees[w] - 1, -1, -1):
            if parent[np.int64(neighbours[w, j])] != w:
                neighbours[w, j] = u
                return True
    return False


@njit(nogil=True, cache=True)
def _connect(
    vectors: Any, neighbours: Any, degrees: Any, entry: int, list_size: int
) -> int:  # pragma: no cover
    n = vectors.shape[0]
    parent = np.full(n, -1, np.int64)
    parent[entry] = entry
    queue = np.empty(n, np.uint32)
    leaf = _spread(neighbours, degrees, parent, entry, queue)
    s = scratch(list_size, neighbours)
    added = 0
    for u in range(n):
        if parent[u] >= 0:
            continue
        _, visited, _ = greedy_search(vectors, u, u, vectors, neighbours, degrees, entry, list_size, s)
        by_distance = np.argsort(s.visited_distances[:visited], kind="mergesort")
        w: Any = -1
        for may_replace in (False, True):
            for i in by_distance:
                if w < 0 and _link(neighbours, degrees, parent, np.int64(s.visited_ids[i]), u, may_replace):
                    w = np.int64(s.visited_ids[i])
        if w < 0:
            w = leaf
            _link(neighbours, degrees, parent, w, u, True)
        parent[u] = w
        added += 1
        leaf = _spread(neighbours, degrees, parent, u, queue)
    return added
