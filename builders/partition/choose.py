"""Choice of neighbour lists among candidates: first those from a vertex's leaves, then the reverse edges.

Vertices are processed in the order of their leaves, so that most vectors compared are in a core's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.partition.leaf_lists import NOBODY
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances
from indexmill.reader.threads import map_blocks

#: Vertices of a task.
BLOCK = 4096


class Copies:
    """Places for the lists of all copies: those of one vertex together, vertices in the order of their first leaf.

    Memory: 4 bytes a copy, 16 a vertex.

    Parameters
    ----------
    members : uint32 array, shape (n_copies,)
        Members of all leaves.
    n_vertices : int

    Attributes
    ----------
    order : uint32 array, shape (n_vertices,)
        All vertices, in the order of their first leaf.
    starts : int64 array, shape (n_vertices + 1,)
        The lists of vertex ``order[i]`` are rows ``starts[i]`` to ``starts[i + 1]``.
    rows : uint32 array, shape (n_copies,)
        Row for the list of each copy; int64 if 32 bits are too few.
    """

    def __init__(self, members: NDArray[np.uint32], n_vertices: int) -> None:
        self.order = np.empty(n_vertices, np.uint32)
        self.rows = np.empty(len(members), np.uint32 if len(members) <= 1 << 32 else np.int64)
        self.starts = np.empty(n_vertices + 1, np.int64)
        _place(members, self.order, self.starts, self.rows)

    def choose_all(
        self,
        vectors: NDArray[Any],
        lists: NDArray[np.uint32],
        candidates: int,
        rule: PruneRule,
        neighbours: NDArray[np.uint32],
        degrees: NDArray[np.int32],
        threads: int,
    ) -> Iterator[int]:
        """Fill all lists by robust prune of the `candidates` nearest in a vertex's leaves; yield numbers of lists.

        Parameters
        ----------
        vectors : uint8 or float32 array, shape (n_vertices, dim)
        lists : uint32 array, shape (n_copies, k)
            As `leaf_lists` arranges them in `rows`.
        neighbours, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
        """

        def block(first: int, last: int) -> int:
            starts = self.starts[first : last + 1]
            _choose(vectors, self.order[first:last], starts, lists, candidates, rule, neighbours, degrees)
            return last - first

        return map_blocks(block, len(self.order), BLOCK, threads)


@kernel
def _place(members: Any, order: Any, starts: Any, rows: Any) -> None:  # pragma: no cover - compiled
    ends = np.zeros(order.size, np.int64)
    for v in members:
        ends[v] += 1
    starts[0], met = 0, 0
    for v in members:
        if ends[v] > 0:  # a count, until its first copy is met
            order[met] = v
            starts[met + 1] = starts[met] + ends[v]
            ends[v] = -starts[met] - 1
            met += 1
    for i in range(members.size):
        v = members[i]
        rows[i] = -ends[v] - 1
        ends[v] -= 1


@kernel
def _choose(
    vectors: Any,
    vertices: Any,
    starts: Any,
    lists: Any,
    candidates: int,
    rule: PruneRule,
    neighbours: Any,
    degrees: Any,
) -> None:  # pragma: no cover - compiled
    most, k = 0, lists.shape[1]
    for i in range(vertices.size):
        most = max(most, (starts[i + 1] - starts[i]) * k)
    ids, distances, slots = space(most)
    for i in range(vertices.size):
        v = np.int64(vertices[i])
        met = emptied(slots, (starts[i + 1] - starts[i]) * k)
        n = 0
        for at in range(starts[i], starts[i + 1]):
            for j in range(k):
                if lists[at, j] == NOBODY:
                    break
                n = add_distinct(lists[at, j], ids, n, met)
        squared_distances(vectors, v, vectors, ids, n, distances)
        sort_candidates(ids, distances, n)
        degrees[v] = robust_prune(
            vectors, ids, distances, min(n, candidates), neighbours.shape[1], rule, neighbours[v]
        )


@kernel
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
    order: NDArray[np.uint32],
    rule: PruneRule,
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    threads: int,
) -> Iterator[int]:
    """Add reverse edges to all lists, and prune lists that grow too long; yield numbers of lists.

    Memory: 4 bytes an edge, 8 a vertex.

    Parameters
    ----------
    vectors : uint8 or float32 array, shape (n_vertices, dim)
    order : uint32 array, shape (n_vertices,)
        Order of processing; does not change the result.
    neighbours, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
    """
    sources = np.empty(int(degrees.sum(dtype=np.int64)), np.uint32)
    starts = np.zeros(len(degrees) + 1, np.int64)
    _reverse(neighbours, degrees, sources, starts)

    def block(first: int, last: int) -> int:
        _add_reversed(vectors, order[first:last], sources, starts, rule, neighbours, degrees)
        return last - first

    return map_blocks(block, len(order), BLOCK, threads)


@kernel
def _add_reversed(
    vectors: Any, vertices: Any, sources: Any, starts: Any, rule: PruneRule, neighbours: Any, degrees: Any
) -> None:  # pragma: no cover - compiled
    most = 0
    for v in vertices:
        most = max(most, degrees[v] + starts[v + 1] - starts[v])
    ids, distances, slots = space(most)
    for v in vertices:
        met = emptied(slots, degrees[v] + starts[v + 1] - starts[v])
        n = 0
        for j in range(degrees[v]):
            n = add_distinct(neighbours[v, j], ids, n, met)
        for at in range(starts[v], starts[v + 1]):
            n = add_distinct(sources[at], ids, n, met)
        squared_distances(vectors, v, vectors, ids, n, distances)
        sort_candidates(ids, distances, n)
        if n <= neighbours.shape[1]:
            neighbours[v, :n] = ids[:n]
            degrees[v] = n
        else:
            degrees[v] = robust_prune(vectors, ids, distances, n, neighbours.shape[1], rule, neighbours[v])


@kernel
def space(most: int) -> Any:  # pragma: no cover - compiled
    """Allocate ids, distances and a hash table of the vertices met."""
    return np.empty(most + 1, np.uint32), np.empty(most + 1, np.float32), np.empty(_n_slots(most), np.uint32)


@kernel
def _n_slots(most: int) -> int:  # pragma: no cover - compiled
    slots = 64
    while slots < 2 * most:
        slots *= 2
    return slots


@kernel
def emptied(slots: Any, most: int) -> Any:  # pragma: no cover - compiled
    """Return an empty hash table for at most `most` vertices, in the fewest of `slots`, because clearing costs time."""
    met = slots[: _n_slots(most)]
    met[:] = 0
    return met


@kernel
def add_distinct(vertex: Any, ids: Any, n: int, met: Any) -> int:  # pragma: no cover - compiled
    """Append a vertex to the first `n` ids unless the table has it (open addressing; 0 is an empty slot)."""
    mask = np.uint64(met.size - 1)
    slot = (np.uint64(vertex) * np.uint64(2654435761)) >> np.uint64(16) & mask
    while met[slot] != 0:
        if met[slot] == vertex + 1:
            return n
        slot = (slot + np.uint64(1)) & mask
    met[slot] = vertex + 1
    ids[n] = vertex
    return n + 1
