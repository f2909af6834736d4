"""Edges between the vectors of one label (the idea of StitchedVamana, Gollapudi et al., WWW 2023).

A search for vectors of one label follows edges through all others, because few neighbours of a vertex have its label.
Here the vectors of each label get a graph of their own, whose edges enter the lists of the graph of all vectors. A
search of one label can then stay among its vectors, and other searches find nearly as much as before.

Deviations from the paper: the graph of all vectors is not replaced by the graphs of labels, but gives them a part of
its places. A vector has one label. Labels of few vectors get no edges, since their vectors are read one by one.

Memory: `label_bytes`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.vamana.bridges import is_among
from indexmill.builders.vamana.build import build_vamana, list_capacity
from indexmill.builders.vamana.enter import enter_edges
from indexmill.builders.vamana.graph import Graph, VamanaParameters
from indexmill.builders.vamana.prune import PruneRule
from indexmill.formats.kernel import kernel
from indexmill.reader.threads import run_blocks

#: Vectors of a label from which on it gets edges: a search reads all vectors of smaller ones.
LEAST_VECTORS = 256
#: Vertices of a task.
_BLOCK = 512


def label_bytes(n: int, most: int, row_bytes: int, places: int) -> int:
    """Return the peak memory of `add_label_edges`, without rows and lists, in bytes.

    Parameters
    ----------
    n : int
        Vertices.
    most : int
        Vertices of the most frequent label, whose rows are copied.
    """
    return 16 * n + most * (row_bytes + 4 * list_capacity(places) + 28)


def add_label_edges(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    labels: NDArray[np.integer[Any]],
    places: int,
    parameters: VamanaParameters,
    *,
    seed: int,
    threads: int = 1,
    least: int = LEAST_VECTORS,
) -> int:
    """Add edges within each label, in place; return the number of edges that were not there.

    A list that is full loses neighbours by robust prune, at most `places` of them. By edges within a label all of its
    vectors can be reached from the one that is `nearest_to_mean`.

    Parameters
    ----------
    vectors : float32, float16, uint8 or int8 array, shape (n_vertices, dim), C-contiguous
        May be a mapped file.
    neighbours, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
        Lists in ascending order of (distance, id), before and after.
    labels : int array, shape (n_vertices,)
        Negative for a vertex without a label.
    places : int
        Most edges within the label that a list gets, 2 to R.
    parameters : VamanaParameters
        Those of the graph; the graphs of labels have its list size and its slack.
    seed : int
        Decides the order in which vectors are inserted into the graph of their label.
    threads : int
        Does not change the result.
    least : int
        Vectors of a label from which on it gets edges.
    """
    order = np.argsort(labels, kind="stable")
    firsts = np.unique(labels[order], return_index=True)[1].tolist()
    of_label, rows, added = replace(parameters, max_degree=places), as_bits(vectors), 0
    for first, last in zip(firsts, [*firsts[1:], len(order)], strict=True):
        mine = order[first:last]
        if last - first >= max(least, 2) and labels[mine[0]] >= 0:
            own = np.ascontiguousarray(vectors[mine])
            graph = build_vamana(own, nearest_to_mean(own), of_label, seed=seed, threads=threads)
            added += _entered(rows, neighbours, degrees, mine, graph, parameters.rule, threads)
    return added


def nearest_to_mean(vectors: NDArray[Any]) -> int:
    """Return the row nearest to the mean: where the graph of a label is entered (ties: the first)."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    distances = [
        ((block - mean) ** 2).sum(axis=1) for block in np.array_split(vectors, -(-len(vectors) // 4096))
    ]
    return int(np.concatenate(distances).argmin())


def _entered(
    rows: NDArray[Any], neighbours: NDArray[np.uint32], degrees: NDArray[np.int32], mine: NDArray[np.int64],
    graph: Graph, rule: PruneRule, threads: int,
) -> int:  # fmt: skip
    def block(first: int, last: int) -> int:
        own = graph.neighbours[first:last], graph.degrees[first:last]
        return int(_enter(rows, neighbours, degrees, mine, first, *own, rule))

    return sum(run_blocks(block, len(mine), _BLOCK, threads))


@kernel
def _enter(
    vectors: Any, neighbours: Any, degrees: Any, mine: Any, first: int, own: Any, n_own: Any, rule: PruneRule
) -> int:  # pragma: no cover - compiled
    most, added = neighbours.shape[1], 0
    ids, distances = np.empty(most, np.uint32), np.empty(most, np.float32)
    edges, kept = np.empty(most, np.uint32), np.empty(most, np.uint32)
    for i in range(n_own.size):
        v, n_edges, n = mine[first + i], n_own[i], 0
        for j in range(n_edges):
            edges[j] = mine[own[i, j]]
        for j in range(degrees[v]):
            if not is_among(neighbours[v, j], edges, n_edges):
                ids[n] = neighbours[v, j]
                n += 1
        added += n_edges - (degrees[v] - n)
        enter_edges(vectors, v, ids, n, edges, n_edges, rule, distances, kept, neighbours, degrees)
    return added
