"""Edges between the vectors of one label (the idea of StitchedVamana, Gollapudi et al., WWW 2023).

A search for vectors of one label follows edges through all others, because few neighbours of a vertex have its label.
Here the vectors of each label get a graph of their own, whose edges enter the lists of the graph of all vectors. A
search of one label can then stay among its vectors, wherever it starts, and other searches find nearly as much as
before.

Bridges between the vectors of a query (`bridges`) keep their places. So do edges that lead where no other neighbour
does, such as those between distant clusters (`builders.partition.links`), unless a list has too many of them.

Deviations from the paper: the graph of all vectors is not replaced by the graphs of labels, but gives them a part of
its places. A vector has one label. Labels of few vectors get no edges: a search with as many candidates compares all of
them.

Memory: `label_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.vamana.bridges import bridge_places, bridges_of, is_among, most_candidates, queries_of
from indexmill.builders.vamana.build import build_vamana, list_capacity
from indexmill.builders.vamana.connect import NOBODY, connect_both_ways, connect_bytes, connect_unreachable
from indexmill.builders.vamana.enter import enter_edges
from indexmill.builders.vamana.entries import medoid
from indexmill.builders.vamana.graph import VamanaParameters
from indexmill.builders.vamana.prune import PruneRule, robust_prune
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances
from indexmill.reader.threads import run_blocks

#: Vectors of a label from which on it gets edges: a search with as many candidates compares all of a smaller one.
LEAST_VECTORS = 256
#: A neighbour leads where another does if that is nearer to it by this ratio of squared distances.
_NEARER = np.float32(1.1)
#: Bytes of rows that are compared with the mean at a time.
_MEAN_BYTES = 1 << 20
#: Vertices of a task.
_BLOCK = 512


class LabelEdges(NamedTuple):
    """Edges that were not there before.

    Attributes
    ----------
    within : int
        Those within a label.
    linked : int
        Those to vertices that could not be reached any more.
    """

    within: int
    linked: int


def label_bytes(n: int, most: int, row_bytes: int, places: int) -> int:
    """Return the peak memory of `add_label_edges`, without rows, lists and bridges, in bytes.

    Parameters
    ----------
    n : int
        Vertices.
    most : int
        Vertices of the most frequent label, whose rows are copied.
    places : int
        Places of its edges in a list.
    """
    return 24 * n + max(most * (row_bytes + 4 * list_capacity(places) + 40), connect_bytes(n))


def add_label_edges(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    entry: int,
    labels: NDArray[np.integer[Any]],
    places: Callable[[int], int],
    parameters: VamanaParameters,
    *,
    seed: int,
    nearest: NDArray[np.uint32] | None = None,
    threads: int = 1,
    least: int = LEAST_VECTORS,
) -> LabelEdges:
    """Add edges within each label, in place.

    By edges within a label each of its vectors leads to each other one, and all vertices stay reachable from `entry`. A
    list that is full loses neighbours by robust prune, at most as many as enter it, and no bridge; one more is replaced
    where a vertex would not be reached otherwise.

    Parameters
    ----------
    vectors : float32, float16, uint8 or int8 array, shape (n_vertices, dim), C-contiguous
        May be a mapped file.
    neighbours, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
        Lists in ascending order of (distance, id), before and after.
    entry : int
        Reaches every vertex before.
    labels : int array, shape (n_vertices,)
        Negative for a vertex without a label.
    places : callable
        Of the vectors of a label the most edges within it that a list gets, 2 to R - 1.
    parameters : VamanaParameters
        Those of the graph; the graphs of labels have its list size and its slack.
    seed : int
        Decides the order in which vectors are inserted into the graph of their label.
    nearest : uint32 array, shape (n_queries, k), optional
        The vertices nearest to each query, nearest first, if `add_bridges` got them.
    threads : int
        Does not change the result.
    least : int
        Vectors of a label from which on it gets edges.
    """
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    firsts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()]
    del ordered  # frees memory
    asked = np.empty((0, 0), np.uint32) if nearest is None else nearest
    entering = _Entering(
        as_bits(vectors), neighbours, degrees, parameters.rule, asked, *queries_of(asked, len(degrees))
    )
    kept = np.full((2, len(degrees)), NOBODY, np.uint32)
    added = 0
    for first, last in zip(firsts, [*firsts[1:], len(order)], strict=True):
        mine = order[first:last]
        if last - first >= max(least, 2) and labels[mine[0]] >= 0:
            of_label = replace(parameters, max_degree=places(len(mine)))
            added += _enter_label(
                entering, mine, np.ascontiguousarray(vectors[mine]), of_label, kept, seed, threads
            )
    linked = 0
    if added:
        size = parameters.build_list_size
        linked = connect_unreachable(vectors, neighbours, degrees, entry, size, kept=kept)
    return LabelEdges(added, linked)


class _Entering(NamedTuple):
    """What edges of all labels enter: a graph, its rule, and what decides its bridges."""

    vectors: NDArray[Any]
    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]
    rule: PruneRule
    nearest: NDArray[np.uint32]
    starts: NDArray[np.int64]
    queries: NDArray[np.uint32]


def _enter_label(
    entering: _Entering, mine: NDArray[np.int64], rows: NDArray[Any], parameters: VamanaParameters,
    kept: NDArray[np.uint32], seed: int, threads: int,
) -> int:  # fmt: skip
    """Enter the edges of the graph of vertices `mine`; note in `kept` those that connect it; return their number."""
    middle = medoid(rows, rows.mean(axis=0, dtype=np.float64), _MEAN_BYTES)
    graph = build_vamana(rows, middle, parameters, seed=seed, threads=threads)
    lists = graph.neighbours, graph.degrees
    connecting = connect_both_ways(rows, *lists, middle, parameters.build_list_size)
    for side, own in zip(kept, connecting, strict=True):
        known = own != NOBODY
        side[mine[known]] = mine[own[known]]

    def block(first: int, last: int) -> int:
        own = (each[first:last] for each in (mine, *lists))
        return int(_enter(*entering, bridge_places(entering.neighbours.shape[1]), *own, mine))

    return sum(run_blocks(block, len(mine), _BLOCK, threads))


@kernel
def _enter(
    vectors: Any, neighbours: Any, degrees: Any, rule: PruneRule, nearest: Any, starts: Any, queries: Any,
    bridge_places: int, vertices: Any, own: Any, n_own: Any, mine: Any,
) -> int:  # pragma: no cover - compiled  # fmt: skip
    most, added = neighbours.shape[1], 0
    ids = np.empty(most_candidates(nearest, most), np.uint32)
    distances = np.empty(ids.size, np.float32)
    edges, bridges = np.empty(most, np.uint32), np.empty(most, np.uint32)
    kept, apart = np.empty(most, np.uint32), np.empty(most, np.float32)
    for i in range(n_own.size):
        v = vertices[i]
        n_within: Any = np.int64(n_own[i])
        n_bridges = bridges_of(vectors, v, nearest, starts, queries, bridge_places, ids, distances, bridges)
        for j in range(n_within):
            edges[j] = mine[own[i, j]]
        n_edges, n, there = n_within, 0, 0
        for j in range(degrees[v]):
            u = neighbours[v, j]
            if is_among(u, edges, n_within):
                there += 1
            elif n_edges < most and is_among(u, bridges, n_bridges):
                edges[n_edges] = u
                n_edges += 1
            else:
                ids[n] = u
                n += 1
        added += n_within - there
        if n > most - n_edges:
            n = _leave(vectors, v, ids, n, edges, n_edges, most - n_edges, rule, distances, kept, apart)
        enter_edges(vectors, v, ids, n, edges, n_edges, rule, distances, kept, neighbours, degrees)
    return added


@kernel
def _leave(
    vectors: Any, v: int, ids: Any, n: int, edges: Any, n_edges: int, left: int, rule: PruneRule, distances: Any,
    kept: Any, apart: Any,
) -> int:  # pragma: no cover - compiled  # fmt: skip
    """Leave `left` of the first `n` neighbours in `ids`; return their number.

    Robust prune chooses them. But a neighbour that it drops stays if none of the chosen leads there then: in a place
    that is left, or in that of the last chosen one where another leads.
    """
    squared_distances(vectors, v, vectors, ids, n, distances)
    n_kept = robust_prune(vectors, ids, distances, n, left, rule, kept) if left > 0 else 0
    last = n_kept
    for j in range(n - 1, -1, -1):
        u, length = ids[j], distances[j]
        if is_among(u, kept, n_kept):
            continue
        if _leads(vectors, u, length, edges, n_edges, apart) or _leads(
            vectors, u, length, kept, n_kept, apart
        ):
            continue
        if n_kept < left:
            kept[n_kept] = u
            n_kept += 1
            continue
        is_free = False
        while last > 0 and not is_free:
            last -= 1
            at = 0
            while ids[at] != kept[last]:
                at += 1
            own, length = kept[last], distances[at]
            is_free = _leads(vectors, own, length, edges, n_edges, apart)
            is_free = is_free or _leads(vectors, own, length, kept, n_kept, apart)
        if not is_free:
            break
        kept[last] = u
    ids[:n_kept] = kept[:n_kept]
    return n_kept


@kernel
def _leads(
    vectors: Any, u: Any, length: Any, ids: Any, n: int, apart: Any
) -> bool:  # pragma: no cover - compiled
    """Return whether one of the first `n` vertices in `ids` but `u` is nearer to `u` than its vertex, `length` away."""
    squared_distances(vectors, np.int64(u), vectors, ids, n, apart)
    at = 0
    while at < n and (ids[at] == u or _NEARER * apart[at] > length):
        at += 1
    return at < n
