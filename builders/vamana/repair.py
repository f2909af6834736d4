"""Repair of neighbour lists whose neighbours were deleted (FreshDiskANN section 4.2, Algorithm 4).

A list that names deleted vertices is chosen anew, by a robust prune with exact distances, among its remaining
neighbours and the remaining neighbours of its deleted ones. Other lists stay.

Deviation from the paper: where so much was deleted that there are fewer candidates than a list has places, deleted
neighbours of deleted neighbours are followed, too, breadth first.

A list depends on its own row and on those of deleted vertices alone, so the result does not depend on the number of
threads. No list gets longer than R, and no edge is added in the other direction: vertices that lost all their incoming
edges are linked by `builders.vamana.connect`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances
from indexmill.reader.threads import map_blocks

#: Vertices of a task.
_BLOCK = 2048
#: Most deleted vertices that are followed for one list, as a multiple of its places.
_FOLLOWED = 8


def repair_lists(
    vectors: NDArray[Any],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.int32],
    rule: PruneRule,
    out: NDArray[np.uint32],
    out_degrees: NDArray[np.int32],
    *,
    threads: int = 1,
    advance: Callable[[int], None] = lambda vertices: None,
) -> int:
    """Write the lists of the vertices that remain, without the deleted ones.

    Time: for each deleted neighbour of a list, R distances, and those of a prune. Memory: a few lists for each thread.

    Parameters
    ----------
    vectors : float32, float16, uint8 or int8 array, shape (m, dim)
        Of the vertices that remain, 0 to m - 1.
    neighbours, degrees : uint32 array (n, R) and int32 array (n,)
        Of all vertices; those from m on are deleted. Not changed.
    out, out_degrees : uint32 array (m, R) and int32 array (m,)
        Receive the lists: nearest first (ties by id), then zeros. A list without a deleted neighbour keeps its order.
    advance : callable
        Called with the number of vertices done.

    Returns
    -------
    int
        Number of lists that were chosen anew.
    """
    rows = as_bits(vectors)

    def block(first: int, last: int) -> tuple[int, int]:
        repaired = _repair_rows(rows, neighbours, degrees, first, last, rule, out, out_degrees)
        return int(repaired), last - first

    total = 0
    for repaired, done in map_blocks(block, len(out), _BLOCK, threads):
        total += repaired
        advance(done)
    return total


@kernel
def _repair_rows(
    vectors: Any, neighbours: Any, degrees: Any, first: int, last: int, rule: PruneRule, out: Any, out_degrees: Any
) -> int:  # pragma: no cover - compiled  # fmt: skip
    width, living = out.shape[1], vectors.shape[0]
    deleted = np.empty(_FOLLOWED * width, np.int64)
    ids = np.empty(width + deleted.size * neighbours.shape[1], np.uint32)
    distances = np.empty(ids.size, np.float32)
    repaired = 0
    for v in range(first, last):
        n, known = 0, 0
        for j in range(degrees[v]):
            u = np.int64(neighbours[v, j])
            if u < living:
                ids[n] = u
                n += 1
            else:
                deleted[known] = u
                known += 1
        if known == 0:
            out[v, :n] = ids[:n]
            out[v, n:] = 0
            out_degrees[v] = n
            continue
        repaired += 1
        n = _add_candidates(neighbours, degrees, v, living, deleted, known, ids, n, width)
        squared_distances(vectors, np.int64(v), vectors, ids, n, distances)
        n = sort_candidates(ids, distances, n)
        n = robust_prune(vectors, ids, distances, n, width, rule, out[v])
        squared_distances(vectors, np.int64(v), vectors, out[v], n, distances)
        out_degrees[v] = sort_candidates(out[v], distances, np.int64(n))
        out[v, n:] = 0
    return repaired


@kernel
def _add_candidates(
    neighbours: Any,
    degrees: Any,
    v: Any,
    living: int,
    deleted: Any,
    known: Any,
    ids: Any,
    n: Any,
    enough: int,
) -> Any:  # pragma: no cover - compiled
    """Add the remaining neighbours of the `known` deleted ones to `ids`; return how many ids there are.

    Deleted ones behind these are followed until there are `enough` ids.
    """
    direct = known
    at = 0
    while at < known and (at < direct or n < enough):
        u = deleted[at]
        for j in range(degrees[u]):
            w = np.int64(neighbours[u, j])
            if w < living:
                if w != v:
                    ids[n] = w
                    n += 1
            elif known < deleted.size:
                there = False
                for i in range(known):
                    if deleted[i] == w:
                        there = True
                        break
                if not there:
                    deleted[known] = w
                    known += 1
        at += 1
    return n
