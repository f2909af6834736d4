"""Candidates in a graph built region by region (`builders.partition.regions`): records, reservoirs and lists.

A reservoir holds the nearest distinct candidates of a vertex. It receives the vertices met in the leaves of one region
after another. The result does not depend on the order, because a reservoir is sorted by (distance, id) and bounded.
So the list of a vertex is chosen from the same candidates as in a build in one piece, and is the same.

Rows number the vectors in memory, ids all vectors; rows ascend with ids.

Deviation from the paper (PiPNN, arXiv 2602.21247): a reservoir keeps candidates by distance alone, not by hashes
(HashPrune).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.partition.choose import add_distinct, emptied, space
from indexmill.builders.partition.leaf_lists import NOBODY
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances

#: Candidates of a record: few, because the last record of a vertex is partly empty.
MET = 16
_NONE = np.uint32(NOBODY)


def met_records(
    vectors: NDArray[Any],
    vertices: NDArray[np.int64],
    firsts: NDArray[np.int64],
    ends: NDArray[np.int64],
    lists: NDArray[np.uint32],
    names: NDArray[np.uint32],
    most: int,
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Return the nearest distinct vertices that each vertex met, as records.

    Parameters
    ----------
    vectors : float32, float16 or uint8 array, shape (m, dim)
    vertices : int64 array, shape (b,)
        Rows of the vertices.
    firsts, ends : int64 arrays, shape (b,)
        Range of the lists of each vertex.
    lists : uint32 array, shape (n_copies, k)
        Rows, filled up with `NOBODY`.
    names : uint32 array, shape (m,)
        Ids of the rows.
    most : int
        Most candidates of a vertex.

    Returns
    -------
    owners : int64 array, shape (n_records,)
        Places in `vertices`, ascending.
    payload : uint32 array, shape (n_records, 2 * MET)
        Ids, nearest first, and the bits of their distances; both filled up with `NOBODY`.
    """
    ids = np.empty((len(vertices), most), np.uint32)
    distances = np.empty((len(vertices), most), np.float32)
    counts = np.empty(len(vertices), np.int64)
    _meet(as_bits(vectors), vertices, firsts, ends, lists, ids, distances, counts)
    records = -(-counts // MET)
    payload = np.empty((int(records.sum()), 2 * MET), np.uint32)
    _pack_met(ids, distances.view(np.uint32), counts, names, payload)
    return np.repeat(np.arange(len(vertices)), records), payload


@kernel
def _meet(
    vectors: Any, vertices: Any, firsts: Any, ends: Any, lists: Any, ids: Any, distances: Any, counts: Any
) -> None:  # pragma: no cover - compiled
    k, limit, most = lists.shape[1], ids.shape[1], 0
    for i in range(vertices.size):
        most = max(most, (ends[i] - firsts[i]) * k)
    own, apart, slots = space(most)
    for i in range(vertices.size):
        met = emptied(slots, (ends[i] - firsts[i]) * k)
        n = 0
        for row in range(firsts[i], ends[i]):
            for j in range(k):
                if lists[row, j] == NOBODY:
                    break
                n = add_distinct(lists[row, j], own, n, met)
        squared_distances(vectors, vertices[i], vectors, own, n, apart)
        sort_candidates(own, apart, n)
        n = min(n, limit)
        ids[i, :n] = own[:n]
        distances[i, :n] = apart[:n]
        counts[i] = n


@kernel
def _pack_met(
    ids: Any, distances: Any, counts: Any, names: Any, payload: Any
) -> None:  # pragma: no cover - compiled
    width, record = payload.shape[1] // 2, 0
    for i in range(counts.size):
        for first in range(0, counts[i], width):
            for j in range(width):
                there = first + j < counts[i]
                payload[record, j] = names[ids[i, first + j]] if there else _NONE
                payload[record, width + j] = distances[i, first + j] if there else _NONE
            record += 1


class Reservoirs:
    """The nearest distinct candidates of each vertex of a part.

    Memory: 8 bytes a candidate and 4 a vertex.

    Parameters
    ----------
    n_vertices, most : int
        Vertices, and candidates of each at most.

    Attributes
    ----------
    ids, distances : uint32 and float32 arrays, shape (n_vertices, most)
        In ascending order of (distance, id).
    counts : int32 array, shape (n_vertices,)
    """

    def __init__(self, n_vertices: int, most: int) -> None:
        self.ids = np.empty((n_vertices, most), np.uint32)
        self.distances = np.empty((n_vertices, most), np.float32)
        self.counts = np.zeros(n_vertices, np.int32)

    def add(self, vertices: NDArray[np.int64], payload: NDArray[np.uint32]) -> None:
        """Add records of `met_records`; the same candidate may come from several regions."""
        _take(vertices, payload, payload.view(np.float32), self.ids, self.distances, self.counts)


@kernel
def _take(
    vertices: Any, payload: Any, bits: Any, ids: Any, distances: Any, counts: Any
) -> None:  # pragma: no cover - compiled
    most, width = ids.shape[1], payload.shape[1] // 2
    new_ids, new_distances = np.empty(most, np.uint32), np.empty(most, np.float32)
    for i in range(vertices.size):
        v = vertices[i]
        size, n, a, b = counts[v], 0, 0, 0
        while n < most:
            more = b < width and payload[i, b] != _NONE
            if a == size and not more:
                break
            if not more:
                left = True
            elif a == size:
                left = False
            else:
                one, other = distances[v, a], bits[i, width + b]
                left = one < other or (one == other and ids[v, a] <= payload[i, b])
                if one == other and ids[v, a] == payload[i, b]:
                    b += 1
            if left:
                new_ids[n], new_distances[n] = ids[v, a], distances[v, a]
                a += 1
            else:
                new_ids[n], new_distances[n] = payload[i, b], bits[i, width + b]
                b += 1
            n += 1
        ids[v, :n] = new_ids[:n]
        distances[v, :n] = new_distances[:n]
        counts[v] = n


def choose_lists(
    vectors: NDArray[Any],
    rows: NDArray[np.uint32],
    names: NDArray[np.uint32],
    reservoirs: Reservoirs,
    span: tuple[int, int],
    rule: PruneRule,
    lists: NDArray[np.uint32],
    degrees: NDArray[np.int32],
) -> None:
    """Choose the lists of some vertices by robust prune.

    Parameters
    ----------
    vectors : float32, float16 or uint8 array, shape (m, dim)
    rows : uint32 array, shape (n_vectors,)
        Row of each id; `NOBODY` if its vector is not in memory.
    names : uint32 array, shape (m,)
    span : tuple of int
        The first vertex, and the one after the last.
    lists, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
        Receive ids, in the order of choice.
    """
    part = slice(*span)
    _choose(
        as_bits(vectors), rows, names, reservoirs.ids[part], reservoirs.distances[part], reservoirs.counts[part], rule,
        lists[part], degrees[part],
    )  # fmt: skip


@kernel
def _choose(
    vectors: Any,
    rows: Any,
    names: Any,
    ids: Any,
    distances: Any,
    counts: Any,
    rule: PruneRule,
    lists: Any,
    degrees: Any,
) -> None:  # pragma: no cover - compiled
    most, degree = ids.shape[1], lists.shape[1]
    candidates, chosen = np.empty(most, np.uint32), np.empty(degree, np.uint32)
    for i in range(counts.size):
        n = np.int64(counts[i])
        for j in range(n):
            candidates[j] = rows[ids[i, j]]
        m = robust_prune(vectors, candidates, distances[i], n, degree, rule, chosen)
        for j in range(m):
            lists[i, j] = names[chosen[j]]
        degrees[i] = m


def missing(
    ids: NDArray[np.uint32], firsts: NDArray[np.int64], ends: NDArray[np.int64], rows: NDArray[np.uint32]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the ids of vectors that are not in memory, vertex by vertex, and the start of each vertex's ids.

    Parameters
    ----------
    ids : uint32 array, shape (any,)
    firsts, ends : int64 arrays, shape (m,)
        Range of each vertex's ids.
    rows : uint32 array, shape (n_vectors,)
        `NOBODY` for vectors that are not in memory.

    Returns
    -------
    missing : uint32 array
    starts : int64 array, shape (m + 1,)
    """
    starts = np.zeros(len(firsts) + 1, np.int64)
    _lack(ids, firsts, ends, rows, starts, np.empty(0, np.uint32))
    found = np.empty(int(starts[-1]), np.uint32)
    _lack(ids, firsts, ends, rows, starts, found)
    return found, starts


@kernel
def _lack(
    ids: Any, firsts: Any, ends: Any, rows: Any, starts: Any, found: Any
) -> None:  # pragma: no cover - compiled
    total = 0
    for i in range(firsts.size):
        for at in range(firsts[i], ends[i]):
            if rows[ids[at]] == NOBODY:
                if found.size:
                    found[total] = ids[at]
                total += 1
        starts[i + 1] = total
