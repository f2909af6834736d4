"""Records of a graph built region by region (`builders.partition.regions`): ids that a vertex receives.

Of the leaves of each region a vertex receives those that it met there, and when lists are chosen, of each part the
other ends of its edges. A record has few ids, because the last one of a vertex is partly empty. Which record an id
comes in, and how often, does not change a graph: lists are chosen from sets (`builders.partition.received`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.partition.choose import add_distinct, emptied, space
from indexmill.builders.partition.leaf_lists import NOBODY
from indexmill.formats.kernel import kernel

#: Ids of a record of those met, and of one of ends of edges.
MET, ENDS = 24, 12
#: Places whose pairs are sorted together, in a core's cache.
_GROUP = 1024
_NONE = np.uint32(NOBODY)


def met_records(
    firsts: NDArray[np.int64], ends: NDArray[np.int64], lists: NDArray[np.uint32], names: NDArray[np.uint32]
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Return the distinct vertices that each vertex met, as records.

    Parameters
    ----------
    firsts, ends : int64 arrays, shape (b,)
        Range of the lists of each vertex.
    lists : uint32 array, shape (n_copies, k)
        Rows, filled up with `NOBODY`.
    names : uint32 array, shape (m,)
        Ids of the rows.

    Returns
    -------
    owners : int64 array, shape (n_records,)
        Places of the vertices in `firsts`, ascending.
    payload : uint32 array, shape (n_records, MET)
        Ids, filled up with `NOBODY`.
    """
    most = int((ends - firsts).max(initial=0)) * lists.shape[1]
    ids = np.empty(
        int((ends - firsts).sum()) * lists.shape[1], np.uint32
    )  # takes memory as far as it is written
    counts = np.empty(len(firsts), np.int64)
    _meet(firsts, ends, lists, names, most, ids, counts)
    records = -(-counts // MET)
    payload = np.full((int(records.sum()), MET), _NONE, np.uint32)
    _pack_met(ids, counts, payload)
    return np.repeat(np.arange(len(firsts)), records), payload


@kernel
def _meet(
    firsts: Any, ends: Any, lists: Any, names: Any, most: int, ids: Any, counts: Any
) -> None:  # pragma: no cover - compiled
    k, at = lists.shape[1], 0
    own, _, slots = space(most)
    for i in range(firsts.size):
        there, n = emptied(slots, (ends[i] - firsts[i]) * k), 0
        for row in range(firsts[i], ends[i]):
            for j in range(k):
                if lists[row, j] == NOBODY:
                    break
                n = add_distinct(lists[row, j], own, n, there)
        for j in range(n):
            ids[at + j] = names[own[j]]
        counts[i] = n
        at += n


@kernel
def _pack_met(ids: Any, counts: Any, payload: Any) -> None:  # pragma: no cover - compiled
    width, record, at = payload.shape[1], 0, 0
    for i in range(counts.size):
        for first in range(0, counts[i], width):
            n = min(width, counts[i] - first)
            payload[record, :n] = ids[at + first : at + first + n]
            record += 1
        at += counts[i]


def edges_both_ways(
    ids: NDArray[np.uint32],
    first: int,
    lists: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    places: NDArray[np.uint32],
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the pair (place of a vertex, id of its neighbour) for both ends of every edge, as integers in groups.

    Parameters
    ----------
    ids : uint32 array, shape (m,)
        Ids of the vertices with these lists; the place of the first is `first`.
    lists, degrees : uint32 array (m, R) and int32 array (m,)
    places : uint32 array, shape (n_vectors,)
        Place of each id.

    Returns
    -------
    pairs : uint64 array, shape (2 * n_edges,)
        A group has all pairs of a range of places; groups ascend.
    starts : int64 array, shape (n_groups + 1,)
    """
    starts = np.zeros(-(-len(places) // _GROUP) + 1, np.int64)
    _count_pairs(first, lists, degrees, places, starts)
    pairs = np.empty(int(starts[-1]), np.uint64)
    _pair(ids, first, lists, degrees, places, starts[:-1].copy(), pairs)
    return pairs, starts


@kernel
def _count_pairs(
    first: int, lists: Any, degrees: Any, places: Any, starts: Any
) -> None:  # pragma: no cover - compiled
    for i in range(degrees.size):
        starts[(first + i) // _GROUP + 1] += degrees[i]
        for j in range(degrees[i]):
            starts[places[lists[i, j]] // _GROUP + 1] += 1
    for group in range(starts.size - 1):
        starts[group + 1] += starts[group]


@kernel
def _pair(
    ids: Any, first: int, lists: Any, degrees: Any, places: Any, ends: Any, pairs: Any
) -> None:  # pragma: no cover - compiled
    half = np.uint64(32)
    for i in range(ids.size):
        own = (first + i) // _GROUP
        for j in range(degrees[i]):
            other = lists[i, j]
            pairs[ends[own]] = np.uint64(first + i) << half | np.uint64(other)
            ends[own] += 1
            place = places[other]
            pairs[ends[place // _GROUP]] = np.uint64(place) << half | np.uint64(ids[i])
            ends[place // _GROUP] += 1


def edge_records(pairs: NDArray[np.uint64]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Sort pairs; return them as records: places, and up to `ENDS` ascending ids, filled up with `NOBODY`."""
    pairs.sort()
    n = int(_count_records(pairs))
    keys, payload = np.empty(n, np.uint32), np.full((n, ENDS), _NONE, np.uint32)
    _pack_edges(pairs, keys, payload)
    return keys, payload


@kernel
def _count_records(pairs: Any) -> int:  # pragma: no cover - compiled
    n: int = _pack_edges(pairs, np.empty(0, np.uint32), np.empty((0, ENDS), np.uint32))
    return n


@kernel
def _pack_edges(pairs: Any, keys: Any, payload: Any) -> int:  # pragma: no cover - compiled
    """Return the number of records, and write them where there is room for them."""
    record, filled, before = -1, ENDS, np.uint32(0)
    for i in range(pairs.size):
        if i > 0 and pairs[i] == pairs[i - 1]:  # an edge chosen in both directions
            continue
        key = np.uint32(pairs[i] >> np.uint64(32))
        if filled == ENDS or key != before:
            record += 1
            filled, before = 0, key
        if record < keys.size:
            keys[record] = key
            payload[record, filled] = np.uint32(pairs[i])
        filled += 1
    return record + 1


def append_ids(
    vertices: NDArray[np.int64],
    payload: NDArray[np.uint32],
    ids: NDArray[np.uint32],
    counts: NDArray[np.int64],
) -> None:
    """Append the ids in records to `ids`, and count them by vertex; vertices ascend.

    Parameters
    ----------
    vertices : int64 array, shape (n_records,)
    payload : uint32 array, shape (n_records, any)
        Filled up with `NOBODY`.
    ids : uint32 array, shape (n_ids,)
        Begins with the ids of earlier records, as many as `counts` says.
    counts : int64 array, shape (n_vertices,)
    """
    _append(vertices, payload, ids, int(counts.sum()), counts)


@kernel
def _append(
    vertices: Any, payload: Any, ids: Any, at: int, counts: Any
) -> None:  # pragma: no cover - compiled
    for i in range(vertices.size):
        for j in range(payload.shape[1]):
            if payload[i, j] == _NONE:
                break
            ids[at] = payload[i, j]
            counts[vertices[i]] += 1
            at += 1
