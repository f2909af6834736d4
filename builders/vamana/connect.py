"""Edges to vertices that the entry vertex cannot reach.

Robust prune does not guarantee reachability: duplicates, far outliers and full lists leave vertices without incoming
edges, and no search would return them. NSG repairs its graph in a similar way.

A tree from the entry marks the reachable vertices. It grows in sweeps over the lists in order, each vertex expanded
once, so that a graph on storage is read a few times from front to back instead of at random. Each unreachable vertex u,
in the order of ids, is searched for. The nearest visited vertex with room in its list gets an edge to u. If there is
none, the nearest visited vertex with an edge outside the tree replaces its last such edge. Tree edges are never
removed, so no reachable vertex is lost, and a leaf of the tree always has an edge to replace.

Memory: 5 bytes a vertex, and 4 for each unreachable vertex.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.vamana.greedy import greedy_search, scratch
from indexmill.builders.vamana.prune import sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances

_NOBODY = np.uint32(0xFFFFFFFF)
#: Most vertices of a newly linked branch before a sweep over the whole graph replaces the queue.
_QUEUE = 4096


def connect_bytes(n: int) -> int:
    """Return the peak memory of `connect_unreachable` for `n` vertices, in bytes."""
    return 9 * n


def connect_unreachable(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    entry: int,
    list_size: int,
    max_degree: int | None = None,
    changed: NDArray[np.bool_] | None = None,
) -> int:
    """Make every vertex reachable from `entry`, changing the graph in place.

    Parameters
    ----------
    vectors : float32, float16, uint8 or int8 array, shape (n_vertices, dim)
    neighbours, degrees : uint32 array (n_vertices, at least R) and int32 array (n_vertices,)
        Lists in ascending order of (distance, id), before and after.
    list_size : int
        Candidates of the search for a vertex that gets the edge.
    max_degree : int, optional
        R; by default the columns of `neighbours`.
    changed : bool array, shape (n_vertices,), optional
        Set to true for every vertex whose list changes.

    Returns
    -------
    int
        Number of edges added.
    """
    most = neighbours.shape[1] if max_degree is None else max_degree
    sources = _connect(as_bits(vectors), neighbours, degrees, entry, list_size, most)
    if changed is not None:
        changed[sources] = True
    return len(sources)


def count_unreachable(neighbours: NDArray[np.uint32], degrees: NDArray[np.int32], entry: int) -> int:
    """Return the number of vertices unreachable from `entry`; lists as for `connect_unreachable`."""
    return int(_count(neighbours, degrees, entry))


@kernel
def _count(neighbours: Any, degrees: Any, entry: int) -> int:  # pragma: no cover - compiled
    parent = np.full(degrees.size, _NOBODY, np.uint32)
    parent[entry] = entry
    _sweep(neighbours, degrees, parent, np.zeros(degrees.size, np.bool_), entry, entry)
    return int(_unreached(parent))


@kernel
def _unreached(parent: Any) -> int:  # pragma: no cover - compiled
    """Count unreached vertices without another array."""
    count = 0
    for v in range(parent.size):
        if parent[v] == _NOBODY:
            count += 1
    return count


@kernel
def _expand(
    neighbours: Any, degrees: Any, parent: Any, v: Any, leaf: Any
) -> Any:  # pragma: no cover - compiled
    """Make the unreached neighbours of `v` its children; return the last of them, or `leaf` if there are none."""
    for j in range(degrees[v]):
        u = np.int64(neighbours[v, j])
        if parent[u] == _NOBODY:
            parent[u] = v
            leaf = u
    return leaf


@kernel
def _sweep(
    neighbours: Any, degrees: Any, parent: Any, expanded: Any, first: int, leaf: int
) -> int:  # pragma: no cover
    """Grow the tree from vertex `first` on until nothing is added; return the last vertex reached, a leaf."""
    n = degrees.size
    v, idle = first, 0
    while idle < n:
        if parent[v] != _NOBODY and not expanded[v]:
            expanded[v] = True
            leaf = _expand(neighbours, degrees, parent, v, leaf)
            idle = 0
        v = v + 1 if v + 1 < n else 0
        idle += 1
    return leaf


@kernel
def _link(
    vectors: Any, neighbours: Any, degrees: Any, parent: Any, w: int, u: int, may_replace: bool, most: int
) -> bool:  # pragma: no cover - compiled
    """Add the edge w -> u if `w` has room or, if allowed, an edge outside the tree to replace."""
    at: Any = -1
    if degrees[w] < most:
        at = np.int64(degrees[w])
        degrees[w] += 1
    elif may_replace:
        for j in range(most - 1, -1, -1):
            if parent[np.int64(neighbours[w, j])] != w:
                at = j
                break
    if at < 0:
        return False
    neighbours[w, at] = u
    distances = np.empty(most, np.float32)
    squared_distances(vectors, w, vectors, neighbours[w], degrees[w], distances)
    sort_candidates(neighbours[w], distances, np.int64(degrees[w]))
    return True


@kernel
def _connect(
    vectors: Any, neighbours: Any, degrees: Any, entry: int, list_size: int, most: int
) -> Any:  # pragma: no cover - compiled
    """Link every unreachable vertex; return the vertices that got an edge, uint32."""
    n = vectors.shape[0]
    parent = np.full(n, _NOBODY, np.uint32)
    expanded = np.zeros(n, np.bool_)
    parent[entry] = entry
    leaf = _sweep(neighbours, degrees, parent, expanded, entry, entry)
    s = scratch(list_size, neighbours)
    sources = np.empty(_unreached(parent), np.uint32)
    added = 0
    for u in range(n):
        if parent[u] != _NOBODY:
            continue
        _, visited, _ = greedy_search(vectors, u, u, vectors, neighbours, degrees, entry, list_size, s)
        by_distance = np.argsort(s.visited_distances[:visited], kind="mergesort")
        w: Any = -1
        for may_replace in (False, True):
            for i in by_distance:
                near = np.int64(s.visited_ids[i])
                if w < 0 and _link(vectors, neighbours, degrees, parent, near, u, may_replace, most):
                    w = near
        if w < 0:
            w = leaf
            _link(vectors, neighbours, degrees, parent, w, u, True, most)
        parent[u] = w
        sources[added] = np.uint32(w)
        added += 1
        leaf = _grow(neighbours, degrees, parent, expanded, u)
    return sources[:added]


@kernel
def _grow(neighbours: Any, degrees: Any, parent: Any, expanded: Any, u: Any) -> Any:  # pragma: no cover
    """Grow the tree from `u` breadth first, by a sweep beyond the queue; return a leaf."""
    queue = np.empty(_QUEUE, np.uint32)
    queue[0] = u
    head, tail = 0, 1
    leaf = u
    while head < tail:
        v = np.int64(queue[head])
        head += 1
        expanded[v] = True
        for j in range(degrees[v]):
            w = np.int64(neighbours[v, j])
            if parent[w] == _NOBODY:
                parent[w] = v
                leaf = w
                if tail < _QUEUE:
                    queue[tail] = w
                tail += 1
        if head == _QUEUE and tail > _QUEUE:
            return _sweep(neighbours, degrees, parent, expanded, u, leaf)
    return leaf
