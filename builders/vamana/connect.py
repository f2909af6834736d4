"""Edges to vertices that the entry vertex cannot reach.

Robust prune does not guarantee reachability: duplicates, far outliers and full lists leave vertices without incoming
edges, and no search would return them. NSG repairs its graph in a similar way.

A tree from the entry marks the reachable vertices. It grows in sweeps over the lists in order, each vertex expanded
once, so that a graph on storage is read a few times from front to back instead of at random. Each unreachable vertex u,
in the order of ids, is searched for. The nearest visited vertex with room in its list gets an edge to u. If there is
none, the nearest visited vertex with an edge outside the tree replaces its last such edge. Tree edges are never
removed, so no reachable vertex is lost, and a leaf of the tree always has an edge to replace.

Where every vertex is to lead to every other, a second tree of edges towards the entry marks the vertices that lead to
it. From a vertex that does not lead to it, the first tree goes on to a leaf that does not lead to it, either. So each
such leaf is linked to the nearest vertex that leads to the entry, in place of its last edge if its list is full.

Memory: 5 bytes a vertex, and 4 for each unreachable vertex; `connect_both_ways` 10 bytes a vertex.
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

#: No vertex.
NOBODY = np.uint32(0xFFFFFFFF)
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
    kept: NDArray[np.uint32] | None = None,
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
    kept : uint32 array, shape (2, n_vertices), optional
        Edges that stay, as `connect_both_ways` returns them: fewer than R of each list.

    Returns
    -------
    int
        Number of edges added.
    """
    most = neighbours.shape[1] if max_degree is None else max_degree
    stay = np.empty((2, 0), np.uint32) if kept is None else kept
    sources = _connect(as_bits(vectors), neighbours, degrees, entry, list_size, most, stay)
    if changed is not None:
        changed[sources] = True
    return len(sources)


def connect_both_ways(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    entry: int,
    list_size: int,
) -> NDArray[np.uint32]:
    """Make every vertex reachable from every other, changing a graph in place whose entry reaches all of them.

    Parameters
    ----------
    vectors, neighbours, degrees, entry, list_size
        As for `connect_unreachable`.

    Returns
    -------
    uint32 array, shape (2, n_vertices)
        Edges that are enough for it: one leads from vertex ``[0, v]`` to v, one from v to vertex ``[1, v]``. Of the
        entry both are `NOBODY`.
    """
    found: NDArray[np.uint32] = _connect_back(as_bits(vectors), neighbours, degrees, entry, list_size)
    return found


def count_unreachable(neighbours: NDArray[np.uint32], degrees: NDArray[np.int32], entry: int) -> int:
    """Return the number of vertices unreachable from `entry`; lists as for `connect_unreachable`."""
    return int(_count(neighbours, degrees, entry))


@kernel
def _count(neighbours: Any, degrees: Any, entry: int) -> int:  # pragma: no cover - compiled
    parent = np.full(degrees.size, NOBODY, np.uint32)
    parent[entry] = entry
    _sweep(neighbours, degrees, parent, np.zeros(degrees.size, np.bool_), entry, entry)
    return int(_unreached(parent))


@kernel
def _unreached(parent: Any) -> int:  # pragma: no cover - compiled
    """Count unreached vertices without another array."""
    count = 0
    for v in range(parent.size):
        if parent[v] == NOBODY:
            count += 1
    return count


@kernel
def _expand(
    neighbours: Any, degrees: Any, parent: Any, v: Any, leaf: Any
) -> Any:  # pragma: no cover - compiled
    """Make the unreached neighbours of `v` its children; return the last of them, or `leaf` if there are none."""
    for j in range(degrees[v]):
        u = np.int64(neighbours[v, j])
        if parent[u] == NOBODY:
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
        if parent[v] != NOBODY and not expanded[v]:
            expanded[v] = True
            leaf = _expand(neighbours, degrees, parent, v, leaf)
            idle = 0
        v = v + 1 if v + 1 < n else 0
        idle += 1
    return leaf


@kernel
def _link(
    vectors: Any,
    neighbours: Any,
    degrees: Any,
    parent: Any,
    w: int,
    u: int,
    may_replace: bool,
    most: int,
    kept: Any,
) -> bool:  # pragma: no cover - compiled
    """Add the edge w -> u if `w` has room or, if allowed, an edge to replace: outside the tree, and none of `kept`."""
    at: Any = -1
    if degrees[w] < most:
        at = np.int64(degrees[w])
        degrees[w] += 1
    elif may_replace:
        for j in range(most - 1, -1, -1):
            x = np.int64(neighbours[w, j])
            if parent[x] != w and not _is_kept(kept, w, x):
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
def _is_kept(kept: Any, w: Any, u: Any) -> Any:  # pragma: no cover - compiled
    """Return whether the edge w -> u is one of `kept`, of which there may be none."""
    return kept.shape[1] > 0 and (kept[0, u] == w or kept[1, w] == u)


@kernel
def _connect(
    vectors: Any, neighbours: Any, degrees: Any, entry: int, list_size: int, most: int, kept: Any
) -> Any:  # pragma: no cover - compiled
    """Link every unreachable vertex; return the vertices that got an edge, uint32."""
    n = vectors.shape[0]
    parent = np.full(n, NOBODY, np.uint32)
    expanded = np.zeros(n, np.bool_)
    parent[entry] = entry
    leaf = _sweep(neighbours, degrees, parent, expanded, entry, entry)
    s = scratch(list_size, neighbours)
    sources = np.empty(_unreached(parent), np.uint32)
    added = 0
    for u in range(n):
        if parent[u] != NOBODY:
            continue
        _, visited, _ = greedy_search(vectors, u, u, vectors, neighbours, degrees, entry, list_size, s)
        by_distance = np.argsort(s.visited_distances[:visited], kind="mergesort")
        w: Any = -1
        for may_replace in (False, True):
            for i in by_distance:
                near = np.int64(s.visited_ids[i])
                if w < 0 and _link(vectors, neighbours, degrees, parent, near, u, may_replace, most, kept):
                    w = near
        if w < 0:
            w = leaf
            _link(vectors, neighbours, degrees, parent, w, u, True, most, kept)
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
            if parent[w] == NOBODY:
                parent[w] = v
                leaf = w
                if tail < _QUEUE:
                    queue[tail] = w
                tail += 1
        if head == _QUEUE and tail > _QUEUE:
            return _sweep(neighbours, degrees, parent, expanded, u, leaf)
    return leaf


@kernel
def _connect_back(
    vectors: Any, neighbours: Any, degrees: Any, entry: int, list_size: int
) -> Any:  # pragma: no cover - compiled
    """Link leaves of the tree from the entry that do not lead to it; return parents, and where vertices go on."""
    n, most = vectors.shape[0], neighbours.shape[1]
    kept, none = np.full((2, n), NOBODY, np.uint32), np.empty((2, 0), np.uint32)
    parent, onward = kept[0], kept[1]
    parent[entry] = entry
    onward[entry] = entry
    _sweep(neighbours, degrees, parent, np.zeros(n, np.bool_), entry, entry)
    _sweep_back(neighbours, degrees, onward)
    is_leaf = np.ones(n, np.bool_)
    for v in range(n):
        if v != entry and parent[v] != NOBODY:
            is_leaf[np.int64(parent[v])] = False
    s = scratch(list_size, neighbours)
    for v in range(n):
        if is_leaf[v]:
            _note(neighbours, degrees, onward, v)  # by an edge of a leaf that was linked before
        if onward[v] != NOBODY or not is_leaf[v]:
            continue
        _, visited, _ = greedy_search(vectors, v, v, vectors, neighbours, degrees, entry, list_size, s)
        nearest, least = np.int64(entry), np.float32(np.inf)
        for i in range(visited):
            u = np.int64(s.visited_ids[i])
            if onward[u] != NOBODY and s.visited_distances[i] < least:
                nearest, least = u, s.visited_distances[i]
        _link(vectors, neighbours, degrees, parent, v, nearest, True, most, none)
        onward[v] = nearest
    _sweep_back(neighbours, degrees, onward)
    parent[entry] = NOBODY
    onward[entry] = NOBODY
    return kept


@kernel
def _sweep_back(neighbours: Any, degrees: Any, onward: Any) -> None:  # pragma: no cover - compiled
    """Note for every vertex that leads to one with a note the neighbour by which it does."""
    found = True
    while found:
        found = False
        for v in range(degrees.size):
            if onward[v] == NOBODY and _note(neighbours, degrees, onward, v):
                found = True


@kernel
def _note(neighbours: Any, degrees: Any, onward: Any, v: Any) -> Any:  # pragma: no cover - compiled
    """Note the first neighbour of `v` that has a note, if `v` has none; return whether `v` has one then."""
    j = 0
    while onward[v] == NOBODY and j < degrees[v]:
        u = np.int64(neighbours[v, j])
        if onward[u] != NOBODY:
            onward[v] = u
        j += 1
    return onward[v] != NOBODY
