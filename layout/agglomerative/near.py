"""The vertices near each vertex, and how near they are.

The closeness of two vertices is

    1 / (1 + (|u - v|^2 / (r_u r_v))^4),

where r_v is the distance from v to one of its near neighbours. It is a soft decision whether the distance of a pair is
that of near neighbours around it (the local scale of Zelnik-Manor and Perona's self-tuning spectral clustering, NeurIPS
2004, with a kernel that is nearly a step). Neighbours of neighbours are candidates, too: pruning left near vertices out
of a list because another one leads to them.

Float vectors are compared by byte codes (`builders.nearest.byte_codes`), which nearly keep the order of distances.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.nearest.byte_codes import fit_codes
from indexmill.formats.kernel import kernel
from indexmill.layout.agglomerative.prefetch import prefetch
from indexmill.layout.agglomerative.tally import new_tally, sum_up
from indexmill.layout.order import Adjacency, Given, Work
from indexmill.reader.kernels import squared_distances
from indexmill.reader.threads import run_blocks

#: Near vertices that a vertex keeps.
NEAR = 24
#: Neighbours of a vertex that are candidates, nearest first; how many of them are asked for theirs, and for how many.
_OWN, _ASKED, _OF_EACH = 32, 4, 8
#: Bytes of a vertex in the lists.
NEAR_BYTES = 5 * NEAR
#: Rank of the neighbour whose distance is the scale around a vertex. The eighth neighbour in a list pruned with slack
#: 1.2 is approximately the fifteenth nearest vertex.
_SCALE_NEIGHBOUR = 8
#: Closeness of equal vectors.
UNIT = 255
#: Vertices between that whose lists are read and that whose neighbours' lists are fetched.
_AHEAD = 4
#: Bytes of a line of the processor's caches, and of a vector that are fetched; more follow by themselves.
_LINE, _FETCHED = 64, 256
#: Vertices of a task.
_BLOCK = 512


class Near(NamedTuple):
    """The vertices near each vertex v.

    Attributes
    ----------
    ids : uint32 array, shape (n, NEAR)
        v itself where there is none.
    closeness : uint8 array, shape (n, NEAR)
        0 where there is none, behind all others.
    """

    ids: NDArray[np.uint32]
    closeness: NDArray[np.uint8]


@contextmanager
def byte_rows(points: NDArray[Any], given: Given) -> Iterator[NDArray[np.uint8]]:
    """Give vectors as bytes: uint8 vectors themselves, and codes of others; shape (n, dim)."""
    if points.dtype == np.uint8:
        yield points
        return
    codes = fit_codes(points)
    with given.scratch(np.uint8, points.shape) as rows:

        def encode(first: int, last: int) -> None:
            rows[first:last] = codes.encode(points[first:last])

        run_blocks(encode, len(points), _BLOCK, given.threads)
        yield rows


def find_near(graph: Adjacency, rows: NDArray[np.uint8], near: Near, threads: int, work: Work) -> None:
    """Write the `NEAR` closest candidates of each vertex."""
    n, dim = rows.shape
    inverse_scales = np.empty(n, np.float32)
    run_blocks(lambda first, last: _scale(*graph, rows, inverse_scales, first, last), n, _BLOCK, threads)

    def find(first: int, last: int) -> int:
        return int(_find(*graph, rows, inverse_scales, *near, first, last))

    work.spend((n + sum(run_blocks(find, n, _BLOCK, threads))) * -(-dim // 16))


@kernel
def _scale(
    neighbours: Any, degrees: Any, rows: Any, inverse_scales: Any, first: int, last: int
) -> None:  # pragma: no cover - compiled
    """Write 1 / r_v; a vertex without neighbours is close to equal vectors only."""
    other, distance = np.empty(1, np.uint32), np.empty(1, np.float32)
    for v in range(first, last):
        distance[0] = 0
        degree: Any = min(np.int64(degrees[v]), _SCALE_NEIGHBOUR)
        if degree > 0:
            other[0] = neighbours[v, degree - 1]
            squared_distances(rows, v, rows, other, 1, distance)
        inverse_scales[v] = 1 / max(np.sqrt(distance[0]), np.float32(1e-9))


@kernel
def _find(
    neighbours: Any,
    degrees: Any,
    rows: Any,
    inverse_scales: Any,
    ids: Any,
    closeness: Any,
    first: int,
    last: int,
) -> Any:  # pragma: no cover - compiled
    """Write the near vertices of a range; return the number of distances."""
    most, dim = 1 + _OWN + _ASKED * _OF_EACH, rows.shape[1]
    listed, amounts, totals = np.empty(most, np.uint32), np.zeros(most, np.int32), np.empty(most, np.int32)
    firsts, places = new_tally(most)
    seen, seen_next = np.empty(most, np.uint32), np.empty(most, np.uint32)
    distances, found = np.empty(most, np.float32), np.empty(most, np.uint8)
    counts, spent, m_next = np.empty(UNIT + 1, np.int32), 0, 0
    for v in range(first - 1, last):
        m, m_next, seen, seen_next = m_next, 0, seen_next, seen
        if v + 1 < last:
            m_listed = _list(neighbours, degrees, v + 1, min(v + 1 + _AHEAD, last - 1), listed)
            m_next = sum_up(listed, amounts, m_listed, firsts, places, seen_next, totals) - 1
            for i in range(1, m_next + 1):
                prefetch(inverse_scales, seen_next[i])
                for at in range(0, min(dim, _FETCHED), _LINE):
                    prefetch(rows, np.int64(seen_next[i]) * dim + at)
        if v < first:
            continue
        candidates = seen[1:]
        squared_distances(rows, v, rows, candidates, m, distances)
        for i in range(m):
            x = distances[i] * (inverse_scales[v] * inverse_scales[candidates[i]])
            x *= x
            found[i] = np.uint8(np.float32(UNIT) / (np.float32(1) + x * x) + np.float32(0.5))
        _keep(v, candidates, found, m, counts, ids[v], closeness[v])
        spent += m
    return spent


@kernel
def _list(
    neighbours: Any, degrees: Any, v: int, soon: int, listed: Any
) -> Any:  # pragma: no cover - compiled
    """Write a vertex, and then its candidates, some repeatedly; return how many these are together.

    Also have what is read of the neighbours of vertex `soon` on its way from memory.
    """
    asked_soon: Any = min(np.int64(degrees[soon]), _ASKED)
    for j in range(asked_soon):
        prefetch(degrees, neighbours[soon, j])
        prefetch(neighbours, np.int64(neighbours[soon, j]) * neighbours.shape[1])
    asked: Any = min(np.int64(degrees[v]), _ASKED)
    n, listed[0] = 1, v
    for j in range(-1, asked):
        of = v if j < 0 else np.int64(neighbours[v, j])
        last: Any = min(np.int64(degrees[of]), _OWN if j < 0 else _OF_EACH)
        for i in range(last):
            listed[n] = neighbours[of, i]
            n += 1
    return n


@kernel
def _keep(
    v: int, candidates: Any, found: Any, m: int, counts: Any, ids: Any, closeness: Any
) -> None:  # pragma: no cover - compiled
    """Keep the closest candidates, of equally close ones the first; v itself stands where there is none."""
    counts[:] = 0
    for i in range(m):
        counts[found[i]] += 1
    least, closer = UNIT, 0
    while least > 1 and closer + counts[least] < ids.size:
        closer += counts[least]
        least -= 1
    ids[:], closeness[:] = v, 0
    k, equal = 0, ids.size - closer
    for i in range(m):
        if found[i] > least or (found[i] == least and equal > 0):
            equal -= found[i] == least
            ids[k], closeness[k] = candidates[i], found[i]
            k += 1
