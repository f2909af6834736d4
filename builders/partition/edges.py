"""Reverse edges of a graph built region by region (`builders.partition.regions`): gathered at both ends, then pruned.

The result is that of `builders.partition.choose.add_reversed`, which works in memory. Arrays are named as in
`builders.partition.reservoirs`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.partition.leaf_lists import NOBODY
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances

#: Ends of edges in a record: few, because the last record of a vertex is partly empty.
ENDS = 8
_NONE = np.uint32(NOBODY)


def edges_both_ways(
    ids: NDArray[np.uint32],
    first: int,
    lists: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    places: NDArray[np.uint32],
) -> NDArray[np.uint64]:
    """Return the pair (place of a vertex, id of its neighbour) for both ends of every edge, as ascending integers.

    Parameters
    ----------
    ids : uint32 array, shape (m,)
        Ids of the vertices with these lists; the place of the first is `first`.
    lists, degrees : uint32 array (m, R) and int32 array (m,)
    places : uint32 array, shape (n_vectors,)
        Place of each id.
    """
    pairs = np.empty(2 * int(degrees.sum(dtype=np.int64)), np.uint64)
    _pair(ids, first, lists, degrees, places, pairs)
    pairs.sort()
    return pairs


@kernel
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
    """Return sorted pairs as records: places, and up to `ENDS` ascending ids of each, filled up with `NOBODY`."""
    keys = np.empty(len(pairs), np.uint32)
    payload = np.full((len(pairs), ENDS), _NONE, np.uint32)
    n = int(_pack_edges(pairs, keys, payload))
    return keys[:n], payload[:n]


@kernel
def _pack_edges(pairs: Any, keys: Any, payload: Any) -> int:  # pragma: no cover - compiled
    record, filled = -1, payload.shape[1]
    for i in range(pairs.size):
        if i > 0 and pairs[i] == pairs[i - 1]:  # an edge chosen in both directions
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
    """Append the ids in records of `edge_records` to `ends`, and count them by vertex; vertices ascend.

    Parameters
    ----------
    ends : uint32 array, shape (n_ends,)
        Begins with the ids of earlier records, as many as `counts` says.
    counts : int64 array, shape (n_vertices,)
    """
    _append(vertices, payload, ends, int(counts.sum()), counts)


@kernel
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
    """Fill the list of each vertex with the other ends of its edges, pruned if there are too many.

    Parameters
    ----------
    vectors, rows, names
        As for `reservoirs.choose_lists`.
    ids : uint32 array, shape (m,)
        Ids of the vertices.
    ends : uint32 array, shape (any,)
        Ids; those of vertex i from ``starts[i]`` to ``starts[i + 1]``, perhaps repeated.
    lists : uint32 array, shape (m, R)
        In ascending order of (distance, id), filled up with the vertex itself.
    """
    _unite(as_bits(vectors), rows, names, ids, ends, starts, rule, lists)


@kernel
def _unite(
    vectors: Any, rows: Any, names: Any, ids: Any, ends: Any, starts: Any, rule: PruneRule, lists: Any
) -> None:  # pragma: no cover - compiled
    most, degree = 1, lists.shape[1]
    for i in range(ids.size):
        most = max(most, starts[i + 1] - starts[i])
    others, ends_rows = np.empty(most, np.uint32), np.empty(most, np.uint32)
    distances = np.empty(most, np.float32)
    chosen = np.empty(degree, np.uint32)
    for i in range(ids.size):
        own, n = np.int64(rows[ids[i]]), 0
        for end in np.sort(ends[starts[i] : starts[i + 1]]):
            if n == 0 or end != others[n - 1]:
                others[n] = end
                ends_rows[n] = rows[end]
                n += 1
        squared_distances(vectors, own, vectors, ends_rows, n, distances)
        sort_candidates(others, distances, n)
        if n > degree:
            for j in range(n):
                ends_rows[j] = rows[others[j]]
            n = robust_prune(vectors, ends_rows, distances, n, degree, rule, chosen)
            for j in range(n):
                others[j] = names[chosen[j]]
            squared_distances(vectors, own, vectors, chosen, n, distances)
            sort_candidates(others, distances, n)
        lists[i, :n] = others[:n]
        lists[i, n:] = ids[i]
