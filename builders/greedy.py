"""Greedy best-first search over a graph in memory (DiskANN Algorithm 1), as numba kernels.

It serves the build (its visited set feeds the prune), finds entry vertices, and counts distances when two
graphs are compared.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.distances import squared_distances

#: Slots of the table that remembers which vertices a search has met. A search with L = 75 and degree 41 meets
#: about 2,000; past three quarters full, vertices go unremembered and may be measured twice, which the
#: candidate list notices.
_SEEN_SLOTS = 1 << 14
#: Expanded vertices remembered per unit of L: enough for every search seen, and a bound on memory.
_VISITED_PER_L = 8


class Scratch(NamedTuple):
    """Work space of one thread; allocate with `scratch`."""

    ids: NDArray[np.uint32]  # (L + 1,) candidates in ascending (distance, id)
    distances: NDArray[np.float32]  # (L + 1,)
    expanded: NDArray[np.uint8]  # (L + 1,)
    visited_ids: NDArray[np.uint32]  # (8 L,) in order of expansion
    visited_distances: NDArray[np.float32]  # (8 L,)
    seen: NDArray[np.uint32]  # (2**14,) open addressing; 0 is empty, so vertex v is stored as v + 1
    fresh_ids: NDArray[np.uint32]  # (cap,) neighbours met for the first time
    fresh_distances: NDArray[np.float32]  # (cap,)


@njit(nogil=True, cache=True)
def scratch(list_size: int, cap: int) -> Any:  # pragma: no cover - compiled
    """Allocate the `Scratch` of a search with `list_size` candidates on rows of `cap` neighbours."""
    many = _VISITED_PER_L * list_size
    return Scratch(
        np.empty(list_size + 1, np.uint32),
        np.empty(list_size + 1, np.float32),
        np.empty(list_size + 1, np.uint8),
        np.empty(many, np.uint32),
        np.empty(many, np.float32),
        np.zeros(_SEEN_SLOTS, np.uint32),
        np.empty(max(cap, 1), np.uint32),
        np.empty(max(cap, 1), np.float32),
    )


@njit(nogil=True, cache=True)
def _first_sight(seen: Any, n_seen: int, v: int) -> bool:  # pragma: no cover - compiled
    """Remember vertex `v`; true unless it was remembered before."""
    mask = _SEEN_SLOTS - 1
    slot = (v * 2654435761 >> 7) & mask
    while seen[slot] != 0:
        if seen[slot] == v + 1:
            return False
        slot = (slot + 1) & mask
    if n_seen * 4 < _SEEN_SLOTS * 3:
        seen[slot] = v + 1
    return True


@njit(nogil=True, cache=True)
def insert_candidate(ids: Any, distances: Any, expanded: Any, size: int, limit: int, v: int, d: float) -> int:  # pragma: no cover
    """Insert (d, v) into the first `size` candidates, kept ascending by (distance, id) and at most `limit`.

    Returns the position it took, or `limit` if it was too far or already there.
    """
    low, high = 0, size
    while low < high:
        middle = (low + high) >> 1
        if distances[middle] < d or (distances[middle] == d and ids[middle] < v):
            low = middle + 1
        else:
            high = middle
    if low >= limit or (low < size and ids[low] == v):
        return limit
    for i in range(min(size, limit - 1), low, -1):
        ids[i] = ids[i - 1]
        distances[i] = distances[i - 1]
        expanded[i] = expanded[i - 1]
    ids[low] = v
    distances[low] = d
    expanded[low] = 0
    return low


@njit(nogil=True, cache=True)
def greedy_search(
    queries: Any, q: int, skip: int, vectors: Any, neighbours: Any, degrees: Any, start: int, list_size: int, s: Any
) -> Any:  # pragma: no cover - compiled
    """Search the graph for row `q` of `queries`, from `start`.

    Parameters
    ----------
    queries, vectors : uint8 or float32 arrays, shape (any, dim) and (n_vertices, dim), of one type
    q : int
        Row of `queries`.
    skip : int
        Vertex that is passed through only if it is `start`, and never returned among the visited; -1 for none.
    neighbours, degrees : uint32 array (n_vertices, cap) and int32 array (n_vertices,)
    list_size : int
        L, candidates kept.
    s : Scratch

    Returns
    -------
    size, n_visited, n_distances : int
        ``s.ids[:size]`` are the nearest candidates in order, ``s.visited_ids[:n_visited]`` the expanded
        vertices, with their distances beside them.
    """
    ids, distances, expanded, visited_ids, visited_distances, seen, fresh_ids, fresh_distances = s
    seen[:] = 0
    _first_sight(seen, 0, start)
    n_seen = 1
    if skip >= 0:
        _first_sight(seen, n_seen, skip)
        n_seen += 1
    fresh_ids[0] = start
    squared_distances(queries, q, vectors, fresh_ids, 1, fresh_distances)
    ids[0] = start
    distances[0] = fresh_distances[0]
    expanded[0] = 0
    size, cursor, n_visited, n_distances = 1, 0, 0, 1
    while cursor < size:
        if expanded[cursor]:
            cursor += 1
            continue
        expanded[cursor] = 1
        v = np.int64(ids[cursor])
        if v != skip and n_visited < visited_ids.size:
            visited_ids[n_visited] = v
            visited_distances[n_visited] = distances[cursor]
            n_visited += 1
        fresh = 0
        for j in range(degrees[v]):
            u = np.int64(neighbours[v, j])
            if _first_sight(seen, n_seen, u):
                n_seen += 1
                fresh_ids[fresh] = u
                fresh += 1
        squared_distances(queries, q, vectors, fresh_ids, fresh, fresh_distances)
        n_distances += fresh
        lowest = cursor + 1
        for j in range(fresh):
            d = fresh_distances[j]
            if size == list_size and d > distances[size - 1]:
                continue
            at = insert_candidate(ids, distances, expanded, size, list_size, np.int64(fresh_ids[j]), d)
            if at < list_size:
                size = min(size + 1, list_size)
                lowest = min(lowest, at)
        cursor = min(cursor + 1, lowest)
    return size, n_visited, n_distances


@njit(nogil=True, cache=True)
def search_rows(
    queries: Any, vectors: Any, neighbours: Any, degrees: Any, start: int, list_size: int, out: Any
) -> int:  # pragma: no cover - compiled
    """Search for every row of `queries`; ``out[i, :k]`` gets the nearest vertices.

    `out` is a uint32 array, shape (n_queries, k), k at most `list_size`; places without a result keep their
    value. Returns the number of distances computed.
    """
    s = scratch(list_size, neighbours.shape[1])
    total = 0
    for q in range(len(queries)):
        size, _, n_distances = greedy_search(
            queries, q, -1, vectors, neighbours, degrees, start, list_size, s
        )
        total += n_distances
        for j in range(min(size, out.shape[1])):
            out[q, j] = s.ids[j]
    return total
