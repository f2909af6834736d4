"""Graphs of float vectors built from byte codes, in half of the time.

The codes share one step (`builders.quantize.scalar.comparable_codes`). One component with a wide range makes them
coarse for all others, and vectors that differ by less than a step have equal codes. So the finished graph is judged:
for some vertices, the nearest of those two edges away, and of those with equal codes, are looked for by codes and by
vectors. Where codes miss too many, the graph is built again, from the vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.partition.build import build_partitioned
from indexmill.builders.partition.equals import ALONE, equal_rows
from indexmill.builders.quantize.scalar import comparable_codes
from indexmill.builders.vamana.graph import Graph, VamanaParameters
from indexmill.reader.threads import run_blocks

#: Largest share of the nearest vectors that codes may miss.
MOST_MISSED = 0.1
#: Vertices whose surroundings are looked at, and nearest vectors of each.
_PROBES, _NEAREST = 128, 10
#: Most vertices with equal codes that are looked at.
_EQUALS = 1000
#: Rows compared with a vertex at a time.
_BLOCK = 1024


def build_coded(
    vectors: NDArray[Any], entry: int, parameters: VamanaParameters, *, threads: int = 1, **how: Any
) -> Graph:
    """Build a graph as `build_partitioned` does, from byte codes where these tell near vectors apart.

    Memory: as of `build_partitioned`, which counts the vectors; they are read into memory only where codes do not
    serve.

    Parameters
    ----------
    vectors : float16 or float32 array, shape (n_vectors, dim), C-contiguous
        A mapped file.
    entry, parameters, threads, how
        As of `build_partitioned`.
    """
    codes = comparable_codes(vectors, threads)
    graph = build_partitioned(codes, entry, parameters, threads=threads, **how)
    if missed_by_codes(vectors, codes, graph, threads) <= MOST_MISSED:
        return graph
    del codes, graph
    how.pop("advance", None)  # all vertices were told
    return build_partitioned(np.array(vectors), entry, parameters, threads=threads, **how)


def missed_by_codes(vectors: NDArray[Any], codes: NDArray[np.uint8], graph: Graph, threads: int = 1) -> float:
    """Return the share of the nearest vectors of some vertices that codes miss.

    They are looked for among the vertices two edges away, and those with equal codes.

    Parameters
    ----------
    vectors, codes : arrays, shape (n, dim)
    graph : Graph
        Of these vectors.
    """
    n = len(vectors)
    probes = np.arange(n) if n <= _PROBES else np.linspace(0, n - 1, _PROBES).astype(np.int64)
    firsts = equal_rows(codes, threads)

    def judge(first: int, last: int) -> tuple[int, int]:
        missed = looked_for = 0
        for vertex in probes[first:last]:
            equal = np.flatnonzero((firsts == firsts[vertex]) & (firsts != ALONE))[:_EQUALS]
            around = _around(graph, vertex, equal)
            nearest = min(_NEAREST, len(around))
            if nearest:
                exact, coded = (_squared(rows, around, vertex) for rows in (vectors, codes))
                found = np.argsort(coded, kind="stable")[:nearest]
                missed += int(np.count_nonzero(exact[found] > np.partition(exact, nearest - 1)[nearest - 1]))
                looked_for += nearest
        return missed, looked_for

    missed, looked_for = np.sum(run_blocks(judge, len(probes), 1, threads), axis=0)
    return float(missed) / max(int(looked_for), 1)


def _around(graph: Graph, vertex: int, others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the vertices one or two edges away from a vertex, and others, ascending."""
    near = graph.neighbours[vertex, : graph.degrees[vertex]]
    further = graph.neighbours[near]
    there = np.arange(further.shape[1]) < graph.degrees[near, None]
    around: NDArray[np.int64] = np.unique(np.concatenate([near, further[there], others]).astype(np.int64))
    found: NDArray[np.int64] = around[around != vertex]
    return found


def _squared(rows: NDArray[Any], around: NDArray[np.int64], vertex: int) -> NDArray[np.float64]:
    """Return squared distances between a row and those `around` it, of few of them at a time."""
    squared = np.empty(len(around))
    for at in range(0, len(around), _BLOCK):
        apart = rows[around[at : at + _BLOCK]].astype(np.float64) - rows[vertex]
        squared[at : at + _BLOCK] = np.einsum("ij,ij->i", apart, apart)
    return squared
