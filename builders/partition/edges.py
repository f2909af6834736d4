"""Edges of a graph built region by region (`builders.partition.regions`), brought to both ends and pruned there.

As `builders.partition.choose.add_reversed` does it in memory, with the same result. Names are those of
`builders.partition.reservoirs`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.partition.leaf_lists import NOBODY
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.reader.kernels import squared_distances

#: Ends of edges in a record: few, because the last record of a vertex is not full.
ENDS = 8
_NONE = np.uint32(NOBODY)


def edges_both_ways(
    ids: NDArray[np.uint32],
    first: int,
    lists: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    places: NDArray[np.uint32],
) -> NDArray[np.uint64]:
    """Return (place of a vertex, id of the other) for both ends of every edge, ascending, as one integer each.

    Parameters
    ----------
    ids : uint32 array, shape (m,)
        Of the vertices whose lists these are; the first one's place is `first`.
    lists, degrees : uint32 array (m, R) and int32 array (m,)
    places : uint32 array, shape (n_vectors,)
        Of each id.
    """
    pairs = np.empty(2 * int(degrees.sum(dtype=np.int64)), np.uint64)
    _pair(ids, first, lists, degrees, places, pairs)
    pairs.sort()
    return pairs


@njit(nogil=True, cache=True)
def _pair(
    ids: Any, first: int, lists: Any, degrees: Any, places: Any, pairs: Any
) -> None:  # pragma: no cover - compiled
    at, half = 0, np.uint64(32)
    for i in range(ids.size):
        for j in range(degrees[i]):
            other = lists[i, j]
            pairs[at] = np.uint64(first + i) << half | np.uint64(other)
            pairs[at + 1] = np.uint64(places[other]) << half | np.uint64(ids[i])
            at += 2


def edge_records(pairs: NDArray[np.uint64]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return sorted pairs as records: places, and up to `ENDS` ids of each, ascending; ids that are none at the end."""
    keys = np.empty(len(pairs), np.uint32)
    payload = np.full((len(pairs), ENDS), _NONE, np.uint32)
    n = int(_pack_edges(pairs, keys, payload))
    return keys[:n], payload[:n]


@njit(nogil=True, cache=True)
def _pack_edges(pairs: Any, keys: Any, payload: Any) -> int:  # pragma: no cover - compiled
    record, filled = -1, payload.shape[1]
    for i in range(pairs.size):
        if i > 0 and pairs[i] == pairs[i - 1]:  # an edge whose other direction was chosen as well
            continue
        key = np.uint32(pairs[i] >> np.uint64(32))
        if filled == payload.shape[1] or key != keys[record]:
            record += 1
            keys[record] = key
            filled = 0
        payload[record, filled] = np.uint32(pairs[i])
        filled += 1
    return record + 1


def append_ends(
    vertices: NDArray[np.int64],
    payload: NDArray[np.uint32],
    ends: NDArray[np.uint32],
    counts: NDArray[np.int64],
) -> None:
    """Append the ids of records of `edge_records`, whose vertices ascend, to `ends`, and count them by vertex.

    Parameters
    ----------
    ends : uint32 array, shape (n_ends,)
        What the vertices before have comes first, as `counts` says.
    counts : int64 array, shape (n_vertices,)
    """
    _append(vertices, payload, ends, int(counts.sum()), counts)


@njit(nogil=True, cache=True)
def _append(
    vertices: Any, payload: Any, ends: Any, at: int, counts: Any
) -> None:  # pragma: no cover - compiled
    for i in range(vertices.size):
        for j in range(payload.shape[1]):
            if payload[i, j] == _NONE:
                break
            ends[at] = payload[i, j]
            counts[vertices[i]] += 1
            at += 1


def unite_ends(
    vectors: NDArray[Any],
    rows: NDArray[np.uint32],
    names: NDArray[np.uint32],
    ids: NDArray[np.uint32],
    ends: NDArray[np.uint32],
    starts: NDArray[np.int64],
    rule: PruneRule,
    lists: NDArray[np.uint32],
) -> None:
    """Fill the list of each vertex with the other ends of its edges, pruned where they are too many.

    Parameters
    ----------
    vectors, rows, names
        As of `reservoirs.choose_lists`.
    ids : uint32 array, shape (m,)
        Of the vertices.
    ends : uint32 array, shape (any,)
        Ids, from ``starts[i]`` to ``starts[i + 1]`` those of vertex i; one may be there twice.
    lists : uint32 array, shape (m, R)
        In ascending order of (distance, id), then the vertex itself.
    """
    _unite(vectors, rows, names, ids, ends, starts, rule, lists)


@njit(nogil=True, cache=True)
def _unite(
    vectors: Any, rows: Any, names: Any, ids: Any, ends: Any, starts: Any, rule: PruneRule, lists: Any
) -> None:  # pragma: no cover - compiled
    most, degree = 1, lists.shape[1]
    for i in range(ids.size):
        most = max(most, starts[i + 1] - starts[i])
    others, mine, distances = np.empty(most, np.uint32), np.empty(most, np.uint32), np.empty(most, np.float32)
    chosen = np.empty(degree, np.uint32)
    for i in range(ids.size):
        own, n = np.int64(rows[ids[i]]), 0
        for end in np.sort(ends[starts[i] : starts[i + 1]]):
            if n == 0 or end != others[n - 1]:
                others[n] = end
                mine[n] = rows[end]
                n += 1
        squared_distances(vectors, own, vectors, mine, n, distances)
        sort_candidates(others, distances, n)
        if n > degree:
            for j in range(n):
                mine[j] = rows[others[j]]
            n = robust_prune(vectors, mine, distances, n, degree, rule, chosen)
            for j in range(n):
                others[j] = names[chosen[j]]
            squared_distances(vectors, own, vectors, chosen, n, distances)
            sort_candidates(others, distances, n)
        lists[i, :n] = others[:n]
        lists[i, n:] = ids[i]
