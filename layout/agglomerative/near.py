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
from indexmill.layout.agglomerative.tally import add, new_tally, take
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
#: Vertices of a task.
_BLOCK = 512


class Near(NamedTuple):
    """The vertices near each vertex v.

    Attributes
    ----------
    ids : uint32 array, shape (n, NEAR)
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
    most = 1 + _OWN + _ASKED * _OF_EACH
    all_seen, amounts, seen = np.empty(most, np.uint32), np.empty(most, np.int32), new_tally(most)
    candidates, distances, found = all_seen[1:], np.empty(most, np.float32), np.empty(most, np.uint8)
    spent = 0
    for v in range(first, last):
        m = _see(neighbours, degrees, v, seen, all_seen, amounts) - 1
        squared_distances(rows, v, rows, candidates, m, distances)
        for i in range(m):
            x = distances[i] * (inverse_scales[v] * inverse_scales[candidates[i]])
            x *= x
            found[i] = np.uint8(np.float32(UNIT) / (np.float32(1) + x * x) + np.float32(0.5))
        _keep(v, candidates, found, m, ids[v], closeness[v])
        spent += m
    return spent


@kernel
def _see(
    neighbours: Any, degrees: Any, v: int, seen: Any, all_seen: Any, amounts: Any
) -> Any:  # pragma: no cover - compiled
    """Write a vertex, and then its candidates, each once; return how many these are together."""
    numbers, sums, places = seen
    mask = np.uint64(numbers.size - 1)
    asked: Any = min(np.int64(degrees[v]), _ASKED)
    n = add(numbers, sums, places, mask, 0, np.uint32(v), 0)
    for j in range(-1, asked):
        of = v if j < 0 else np.int64(neighbours[v, j])
        last: Any = min(np.int64(degrees[of]), _OWN if j < 0 else _OF_EACH)
        for i in range(last):
            n = add(numbers, sums, places, mask, n, neighbours[of, i], 0)
    take(numbers, sums, places, n, all_seen, amounts)
    return n


@kernel
def _keep(
    v: int, candidates: Any, found: Any, m: int, ids: Any, closeness: Any
) -> None:  # pragma: no cover - compiled
    """Keep the closest candidates, of equally close ones the first; v itself stands where there is none."""
    counts = np.zeros(UNIT + 1, np.int64)
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
