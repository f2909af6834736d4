"""Neighbour lists out of candidates: those of a vertex's leaves, then the edges that lead to it.

Vertices are taken in the order of their leaves, so that most of what they are compared with is in a core's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.carve import Leaves, grouped
from indexmill.builders.leaf_lists import NOBODY
from indexmill.builders.parallel import map_blocks
from indexmill.builders.prune import robust_prune, sort_candidates
from indexmill.reader.kernels import squared_distances

#: Vertices that a thread takes at a time.
BLOCK = 4096


class Copies:
    """Where the copies of each vertex are, and what is near them there.

    Memory: 8 bytes a copy, and 16 a vertex.

    Parameters
    ----------
    leaves : Leaves
    lists : uint16 array, shape (n_copies, k)
        As `leaf_lists` makes them.
    n_vertices : int

    Attributes
    ----------
    order : int64 array, shape (n_vertices,)
        All vertices, by their first leaf.
    """

    def __init__(self, leaves: Leaves, lists: NDArray[np.uint16], n_vertices: int) -> None:
        self._leaves, self._lists = leaves, lists
        self._copies, self._starts = grouped(leaves.members.reshape(-1, 1), n_vertices)
        self._leaf = np.repeat(np.arange(len(leaves.starts) - 1, dtype=np.uint32), np.diff(leaves.starts))
        self.order = np.argsort(self._copies[self._starts[:-1]], kind="stable")

    def choose_all(
        self,
        vectors: NDArray[Any],
        candidates: int,
        alpha: float,
        neighbours: NDArray[np.uint32],
        degrees: NDArray[np.int32],
        threads: int,
    ) -> Iterator[int]:
        """Fill all lists: robust prune of the `candidates` nearest in all leaves of a vertex; yield how many are done.

        Parameters
        ----------
        vectors : uint8 or float32 array, shape (n_vertices, dim)
        neighbours, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
        """

        def block(first: int, last: int) -> int:
            _choose(
                vectors, self.order[first:last], self._starts, self._copies, self._leaf, self._leaves.starts,
                self._leaves.members, self._lists, candidates, alpha, neighbours, degrees,
            )  # fmt: skip
            return last - first

        return map_blocks(block, len(self.order), BLOCK, threads)


@njit(nogil=True, cache=True)
def _choose(
    vectors: Any, vertices: Any, starts: Any, copies: Any, leaf_of: Any, leaf_starts: Any, members: Any,
    lists: Any, candidates: int, alpha: float, neighbours: Any, degrees: Any,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    most, k = 0, lists.shape[1]
    for v in vertices:
        most = max(most, (starts[v + 1] - starts[v]) * k)
    ids, distances, slots = _space(most)
    for v in vertices:
        met = _emptied(slots, (starts[v + 1] - starts[v]) * k)
        n = 0
        for at in range(starts[v], starts[v + 1]):
            copy = copies[at]
            first = leaf_starts[leaf_of[copy]]
            for j in range(k):
                place = lists[copy, j]
                if place == NOBODY:
                    break
                n = _add(members[first + np.int64(place)], ids, n, met)
        squared_distances(vectors, v, vectors, ids, n, distances)
        sort_candidates(ids, distances, n)
        degrees[v] = robust_prune(
            vectors, ids, distances, min(n, candidates), neighbours.shape[1], alpha, neighbours[v]
        )


@njit(nogil=True, cache=True)
def _reverse(neighbours: Any, degrees: Any, sources: Any, starts: Any) -> None:  # pragma: no cover - compiled
    for v in range(degrees.size):
        for j in range(degrees[v]):
            starts[neighbours[v, j] + 1] += 1
    for v in range(degrees.size):
        starts[v + 1] += starts[v]
    ends = starts[:-1].copy()
    for v in range(degrees.size):
        for j in range(degrees[v]):
            target = neighbours[v, j]
            sources[ends[target]] = v
            ends[target] += 1


def add_reversed(
    vectors: NDArray[Any],
    order: NDArray[np.int64],
    alpha: float,
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    threads: int,
) -> Iterator[int]:
    """Add to every list the edges that lead to its vertex, and prune those that get too long; yield how many are done.

    Memory: 4 bytes an edge, 8 a vertex.

    Parameters
    ----------
    vectors : uint8 or float32 array, shape (n_vertices, dim)
    order : int64 array, shape (n_vertices,)
        In which vertices are taken; does not reach the result.
    neighbours, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
    """
    sources = np.empty(int(degrees.sum(dtype=np.int64)), np.uint32)
    starts = np.zeros(len(degrees) + 1, np.int64)
    _reverse(neighbours, degrees, sources, starts)

    def block(first: int, last: int) -> int:
        _add_reversed(vectors, order[first:last], sources, starts, alpha, neighbours, degrees)
        return last - first

    return map_blocks(block, len(order), BLOCK, threads)


@njit(nogil=True, cache=True)
def _add_reversed(
    vectors: Any, vertices: Any, sources: Any, starts: Any, alpha: float, neighbours: Any, degrees: Any
) -> None:  # pragma: no cover - compiled
    most = 0
    for v in vertices:
        most = max(most, degrees[v] + starts[v + 1] - starts[v])
    ids, distances, slots = _space(most)
    for v in vertices:
        met = _emptied(slots, degrees[v] + starts[v + 1] - starts[v])
        n = 0
        for j in range(degrees[v]):
            n = _add(neighbours[v, j], ids, n, met)
        for at in range(starts[v], starts[v + 1]):
            n = _add(sources[at], ids, n, met)
        squared_distances(vectors, v, vectors, ids, n, distances)
        sort_candidates(ids, distances, n)
        if n <= neighbours.shape[1]:
            neighbours[v, :n] = ids[:n]
            degrees[v] = n
        else:
            degrees[v] = robust_prune(vectors, ids, distances, n, neighbours.shape[1], alpha, neighbours[v])


@njit(nogil=True, cache=True)
def _space(most: int) -> Any:  # pragma: no cover - compiled
    """Allocate ids, distances and a table of what was met."""
    return np.empty(most + 1, np.uint32), np.empty(most + 1, np.float32), np.empty(_n_slots(most), np.uint32)


@njit(nogil=True, cache=True)
def _n_slots(most: int) -> int:  # pragma: no cover - compiled
    slots = 64
    while slots < 2 * most:
        slots *= 2
    return slots


@njit(nogil=True, cache=True)
def _emptied(slots: Any, most: int) -> Any:  # pragma: no cover - compiled
    """Return an empty table for so many vertices, in as few of `slots` as do: one is emptied for every vertex."""
    met = slots[: _n_slots(most)]
    met[:] = 0
    return met


@njit(nogil=True, cache=True)
def _add(vertex: Any, ids: Any, n: int, met: Any) -> int:  # pragma: no cover - compiled
    """Append a vertex to the first `n` ids unless it was met before (open addressing; 0 is an empty slot)."""
    mask = np.uint64(met.size - 1)
    slot = (np.uint64(vertex) * np.uint64(2654435761)) >> np.uint64(16) & mask
    while met[slot] != 0:
        if met[slot] == vertex + 1:
            return n
        slot = (slot + np.uint64(1)) & mask
    met[slot] = vertex + 1
    ids[n] = vertex
    return n + 1
