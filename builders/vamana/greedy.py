"""Greedy best-first search over a graph in memory (DiskANN Algorithm 1), as numba kernels.

The build prunes the visited vertices of a search; searches also find entry vertices, and count distances in comparisons
of graphs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances

#: Largest graph whose searches remember the vertices met in a bitmap, of at most 16 KiB: it stays in the nearest cache,
#: and clearing it costs less than a short search.
_BITMAP_VERTICES = 1 << 17
#: Slots of the hash table for larger graphs. A search with L = 75 and degree 41 meets approximately 2,000 vertices.
#: Once the table is three quarters full, further vertices may be measured twice, which the candidate list detects.
_SEEN_SLOTS = 1 << 14
#: Most expanded vertices that are remembered, per unit of L: enough for every search observed.
_VISITED_PER_L = 8


class Scratch(NamedTuple):
    """Work space of one thread; allocate with `scratch`.

    A candidate is one uint64: the bits of its distance shifted by 33 (nonnegative floats are ordered as their bits),
    its id shifted by 1, and a last bit that is set once it was expanded. So candidates sort by (distance, id), and an
    insertion moves one array.
    """

    candidates: NDArray[np.uint64]  # (L + 1,) ascending
    visited_ids: NDArray[np.uint32]  # (8 L,) in order of expansion
    visited_distances: NDArray[np.float32]  # (8 L,)
    visited_bits: NDArray[np.uint32]  # the same memory
    seen: NDArray[np.uint32]  # a bitmap, or (2**14,) open addressing with 0 for empty and v + 1 for vertex v
    fresh_ids: NDArray[np.uint32]  # (cap,) neighbours met for the first time
    fresh_bits: NDArray[np.uint32]  # (cap,) bits of their distances


@kernel
def scratch(list_size: int, neighbours: Any) -> Any:  # pragma: no cover - compiled
    """Allocate the `Scratch` of a search with `list_size` candidates on the graph with these lists, (n, cap)."""
    n, cap = neighbours.shape
    slots = (n + 31) >> 5 if n <= _BITMAP_VERTICES else _SEEN_SLOTS
    visited_distances = np.empty(_VISITED_PER_L * list_size, np.float32)
    return Scratch(
        np.empty(list_size + 1, np.uint64),
        np.empty(visited_distances.size, np.uint32),
        visited_distances,
        visited_distances.view(np.uint32),
        np.zeros(slots, np.uint32),
        np.empty(max(cap, 1), np.uint32),
        np.empty(max(cap, 1), np.uint32),
    )


@kernel
def candidate_id(candidate: Any) -> Any:  # pragma: no cover - compiled
    """Return the vertex of a candidate."""
    return np.int64((candidate >> np.uint64(1)) & np.uint64(0xFFFFFFFF))


@kernel
def _first_sight(seen: Any, bitmap: bool, n_seen: int, v: int) -> Any:  # pragma: no cover - compiled
    """Remember vertex `v`; return false if it was remembered before."""
    if bitmap:
        bit = np.uint32(1 << (v & 31))
        old = seen[v >> 5]
        seen[v >> 5] = old | bit
        return old & bit == 0
    mask = _SEEN_SLOTS - 1
    slot = (v * 2654435761 >> 7) & mask
    while seen[slot] != 0:
        if seen[slot] == v + 1:
            return False
        slot = (slot + 1) & mask
    if n_seen * 4 < _SEEN_SLOTS * 3:
        seen[slot] = v + 1
    return True


@kernel
def _insert(candidates: Any, size: int, limit: int, new: Any) -> int:  # pragma: no cover - compiled
    """Insert `new` into the first `size` candidates, which stay ascending and at most `limit`.

    Returns its position, or `limit` if it is too far or already present.
    """
    low, high = 0, size
    while low < high:
        middle = (low + high) >> 1
        if candidates[middle] < new:
            low = middle + 1
        else:
            high = middle
    if low >= limit or (low < size and candidates[low] >> np.uint64(1) == new >> np.uint64(1)):
        return limit
    for i in range(min(size, limit - 1), low, -1):
        candidates[i] = candidates[i - 1]
    candidates[low] = new
    return low


@kernel
def greedy_search(
    queries: Any,
    q: int,
    skip: int,
    vectors: Any,
    neighbours: Any,
    degrees: Any,
    start: int,
    list_size: int,
    s: Any,
) -> Any:  # pragma: no cover - compiled
    """Search the graph for row `q` of `queries`, from `start`.

    Parameters
    ----------
    queries, vectors : arrays, shape (any, dim) and (n_vertices, dim), of one type
        As `reader.kernels.squared_distances` takes them.
    q : int
        Row of `queries`.
    skip : int
        Vertex that is expanded only if it is `start`, and never counts as visited; -1 for none.
    neighbours, degrees : uint32 array (n_vertices, cap) and int32 array (n_vertices,)
    list_size : int
        L, candidates kept.
    s : Scratch

    Returns
    -------
    size, n_visited, n_distances : int
        ``s.candidates[:size]`` are the nearest vertices in order, and ``s.visited_ids[:n_visited]`` the expanded
        vertices, with distances ``s.visited_distances``.
    """
    candidates, visited_ids, _, visited_bits, seen, fresh_ids, fresh_bits = s
    seen[:] = 0
    bitmap = len(neighbours) <= _BITMAP_VERTICES
    _first_sight(seen, bitmap, 0, start)
    n_seen = 1
    if skip >= 0:
        _first_sight(seen, bitmap, n_seen, skip)
        n_seen += 1
    fresh_ids[0] = start
    squared_distances(queries, q, vectors, fresh_ids, 1, fresh_bits)
    candidates[0] = np.uint64(fresh_bits[0]) << np.uint64(33) | np.uint64(start) << np.uint64(1)
    size, cursor, n_visited, n_distances = 1, 0, 0, 1
    while cursor < size:
        candidate = candidates[cursor]
        if candidate & np.uint64(1):
            cursor += 1
            continue
        candidates[cursor] = candidate | np.uint64(1)
        v = candidate_id(candidate)
        if v != skip and n_visited < visited_ids.size:
            visited_ids[n_visited] = v
            visited_bits[n_visited] = candidate >> np.uint64(33)
            n_visited += 1
        fresh = 0
        for j in range(degrees[v]):
            u = np.int64(neighbours[v, j])
            if _first_sight(seen, bitmap, n_seen, u):
                n_seen += 1
                fresh_ids[fresh] = u
                fresh += 1
        squared_distances(queries, q, vectors, fresh_ids, fresh, fresh_bits)
        n_distances += fresh
        cursor += 1
        for j in range(fresh):
            new = np.uint64(fresh_bits[j]) << np.uint64(33) | np.uint64(fresh_ids[j]) << np.uint64(1)
            if size == list_size and new > candidates[size - 1]:
                continue
            at = _insert(candidates, size, list_size, new)
            if at < list_size:
                size = min(size + 1, list_size)
                cursor = min(cursor, at)
    return size, n_visited, n_distances


@kernel
def search_rows(
    queries: Any, vectors: Any, neighbours: Any, degrees: Any, start: int, list_size: int, out: Any
) -> int:  # pragma: no cover - compiled
    """Search for every row of `queries`; write the nearest vertices to `out` and return the number of distances.

    `out` is a uint32 array, shape (n_queries, k), with k at most `list_size`; places without a result keep their value.
    """
    s = scratch(list_size, neighbours)
    total = 0
    for q in range(len(queries)):
        size, _, n_distances = greedy_search(
            queries, q, -1, vectors, neighbours, degrees, start, list_size, s
        )
        total += n_distances
        for j in range(min(size, out.shape[1])):
            out[q, j] = candidate_id(s.candidates[j])
    return total
