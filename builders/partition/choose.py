"""Choice of neighbour lists among candidates: first those from a vertex's leaves, then the reverse edges.

Vertices are processed in the order of their leaves, so that most vectors compared are in a core's cache. Lists are held
in this order, too: memory is taken for them while that of candidates is given back. The distance of an edge is kept,
because the vectors of a list are far apart in memory: reading them again would take longer than all else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.partition.leaf_lists import NOBODY
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.formats.released import release
from indexmill.reader.kernels import squared_distances
from indexmill.reader.threads import map_blocks

#: Vertices of a task.
BLOCK = 4096


class Lists(NamedTuple):
    """Neighbours of vertices in ascending order of (distance, id), and their distances.

    The first row is the list of the vertex that is processed first: `Copies.order`.
    """

    ids: NDArray[np.uint32]  # (n_met, R)
    distances: NDArray[np.float32]  # (n_met, R)
    degrees: NDArray[np.int32]  # (n_met,)

    @classmethod
    def empty(cls, n: int, max_degree: int) -> Lists:
        """Return unwritten lists, which take no memory until they are written."""
        shape = (n, max_degree)
        return cls(np.empty(shape, np.uint32), np.empty(shape, np.float32), np.empty(n, np.int32))

    def part(self, first: int, last: int) -> Lists:
        """Return the lists from row `first` to row `last`."""
        return Lists(self.ids[first:last], self.distances[first:last], self.degrees[first:last])


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
    order : uint32 array, shape (n_met,)
        The vertices that are in a leaf, in the order of their first.
    starts : int64 array, shape (n_met + 1,)
        The lists of vertex ``order[i]`` are rows ``starts[i]`` to ``starts[i + 1]``.
    rows : uint32 array, shape (n_copies,)
        Row for the list of each copy; int64 if 32 bits are too few.
    """

    def __init__(self, members: NDArray[np.uint32], n_vertices: int) -> None:
        order, starts = np.empty(n_vertices, np.uint32), np.empty(n_vertices + 1, np.int64)
        self.rows = np.empty(len(members), np.uint32 if len(members) <= 1 << 32 else np.int64)
        met = int(_place(members, order, starts, self.rows))
        self.order, self.starts = order[:met], starts[: met + 1]

    def choose_all(
        self,
        vectors: NDArray[Any],
        found: NDArray[np.uint32],
        candidates: int,
        degree: int,
        rule: PruneRule,
        lists: Lists,
        threads: int,
    ) -> Iterator[int]:
        """Fill all lists by robust prune of the `candidates` nearest in a vertex's leaves; yield numbers of lists.

        Memory of rows of `found` is given back as soon as they are read: they are lost.

        Parameters
        ----------
        vectors : float32, uint8 or (bits of float16) uint16 array, shape (n_vertices, dim)
        found : uint32 array, shape (n_copies, k)
            As `leaf_lists` arranges them in `rows`.
        degree : int
            Most neighbours chosen, at most R.
        """

        def block(first: int, last: int) -> int:
            starts = self.starts[first : last + 1]
            part = lists.part(first, last)
            _choose(vectors, self.order[first:last], starts, found, candidates, degree, rule, part)
            release(found[starts[0] : starts[-1]])
            return last - first

        return map_blocks(block, len(self.order), BLOCK, threads)


@kernel
def _place(members: Any, order: Any, starts: Any, rows: Any) -> int:  # pragma: no cover - compiled
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
    return met


@kernel
def _choose(
    vectors: Any, vertices: Any, starts: Any, found: Any, candidates: int, degree: int, rule: PruneRule,
    lists: Lists,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    most, k = 0, found.shape[1]
    for i in range(vertices.size):
        most = max(most, (starts[i + 1] - starts[i]) * k)
    ids, distances, slots = space(most)
    chosen = np.empty(degree, np.uint32)
    for i in range(vertices.size):
        v = np.int64(vertices[i])
        met = emptied(slots, (starts[i + 1] - starts[i]) * k)
        n = 0
        for at in range(starts[i], starts[i + 1]):
            for j in range(k):
                if found[at, j] == NOBODY:
                    break
                n = add_distinct(found[at, j], ids, n, met)
        squared_distances(vectors, v, vectors, ids, n, distances)
        n = min(sort_candidates(ids, distances, n), candidates)
        _keep(vectors, i, ids, distances, n, rule, chosen, lists)


@kernel
def _keep(
    vectors: Any, row: int, ids: Any, distances: Any, n: int, rule: PruneRule, chosen: Any, lists: Lists
) -> None:  # pragma: no cover - compiled
    """Prune `n` sorted candidates, and write what is chosen to a row in their order."""
    m = robust_prune(vectors, ids, distances, n, chosen.size, rule, chosen)
    kept = 0
    for i in range(n):
        is_chosen = False
        for j in range(m):
            is_chosen |= chosen[j] == ids[i]
        if is_chosen:
            lists.ids[row, kept], lists.distances[row, kept] = ids[i], distances[i]
            kept += 1
    lists.ids[row, kept:] = 0
    lists.degrees[row] = kept


@kernel
def _reverse(
    lists: Lists, order: Any, sources: Any, distances: Any, starts: Any
) -> None:  # pragma: no cover - compiled
    neighbours, degrees = lists.ids, lists.degrees
    for i in range(order.size):
        for j in range(degrees[i]):
            starts[neighbours[i, j] + 1] += 1
    for v in range(starts.size - 1):
        starts[v + 1] += starts[v]
    ends = starts[:-1].copy()
    for i in range(order.size):
        for j in range(degrees[i]):
            target = neighbours[i, j]
            sources[ends[target]], distances[ends[target]] = order[i], lists.distances[i, j]
            ends[target] += 1


def add_reversed(
    vectors: NDArray[Any], order: NDArray[np.uint32], rule: PruneRule, lists: Lists, threads: int
) -> Iterator[int]:
    """Add reverse edges to all lists, and prune lists that grow too long; yield numbers of lists.

    Memory: 8 bytes an edge, 8 a vertex.

    Parameters
    ----------
    vectors : float32, uint8 or (bits of float16) uint16 array, shape (n_vertices, dim)
    order : uint32 array, shape (n_met,)
        The vertices with these lists. Their order does not change the result.
    """
    n_edges = int(lists.degrees.sum(dtype=np.int64))
    sources, distances = np.empty(n_edges, np.uint32), np.empty(n_edges, np.float32)
    starts = np.zeros(len(vectors) + 1, np.int64)
    _reverse(lists, order, sources, distances, starts)

    def block(first: int, last: int) -> int:
        part = lists.part(first, last)
        _add_reversed(vectors, order[first:last], sources, distances, starts, rule, part)
        return last - first

    return map_blocks(block, len(order), BLOCK, threads)


@kernel
def _add_reversed(
    vectors: Any, vertices: Any, sources: Any, apart: Any, starts: Any, rule: PruneRule, lists: Lists
) -> None:  # pragma: no cover - compiled
    most, degree = 0, lists.ids.shape[1]
    for i in range(vertices.size):
        v = vertices[i]
        most = max(most, lists.degrees[i] + starts[v + 1] - starts[v])
    ids, distances = np.empty(most, np.uint32), np.empty(most, np.float32)
    chosen = np.empty(degree, np.uint32)
    for i in range(vertices.size):
        v = vertices[i]
        n, more = lists.degrees[i], starts[v + 1] - starts[v]
        ids[:n], distances[:n] = lists.ids[i, :n], lists.distances[i, :n]
        ids[n : n + more] = sources[starts[v] : starts[v + 1]]
        distances[n : n + more] = apart[starts[v] : starts[v + 1]]
        n = sort_candidates(ids, distances, n + more)  # an edge chosen in both directions is there twice
        if n > degree:
            _keep(vectors, i, ids, distances, n, rule, chosen, lists)
            continue
        lists.ids[i, :n], lists.distances[i, :n] = ids[:n], distances[:n]
        lists.degrees[i] = n


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
