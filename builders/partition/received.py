"""Lists of a graph built region by region, from the ids that vertices received (`builders.partition.records`).

They are those of a build in one piece (`builders.partition.choose`): of the same candidates in the same order.

Rows number the vectors in memory, ids all vectors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.partition.choose import add_distinct, emptied, space
from indexmill.builders.partition.leaf_lists import NOBODY
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances


class Received(NamedTuple):
    """What consecutive vertices received.

    Attributes
    ----------
    vertices : uint32 array, shape (m,)
        Ids of the vertices.
    ids : uint32 array, shape (any,)
        Ids of others; those of vertex i from ``starts[i]`` to ``starts[i + 1]``, perhaps repeated.
    starts : int64 array, shape (m + 1,)
    """

    vertices: NDArray[np.uint32]
    ids: NDArray[np.uint32]
    starts: NDArray[np.int64]

    def part(self, first: int, last: int) -> Received:
        """Return what vertex `first` to vertex `last` received."""
        return Received(self.vertices[first:last], self.ids, self.starts[first : last + 1])


def choose_lists(
    vectors: NDArray[Any], rows: NDArray[np.uint32], names: NDArray[np.uint32], met: Received, candidates: int,
    rule: PruneRule, lists: NDArray[np.uint32], degrees: NDArray[np.int32],
) -> None:  # fmt: skip
    """Choose lists by robust prune of the `candidates` nearest of those that a vertex met.

    Parameters
    ----------
    vectors : float32, float16 or uint8 array, shape (m, dim)
    rows : uint32 array, shape (n_vectors,)
        Row of each id; `NOBODY` if its vector is not in memory.
    names : uint32 array, shape (m,)
        Ids of the rows.
    lists, degrees : uint32 array (n_vertices, R) and int32 array (n_vertices,)
        Receive ids, in the order of choice.
    """
    _choose(as_bits(vectors), rows, names, met, candidates, rule, lists, degrees)


@kernel
def _choose(
    vectors: Any, rows: Any, names: Any, met: Received, candidates: int, rule: PruneRule, lists: Any, degrees: Any
) -> None:  # pragma: no cover - compiled  # fmt: skip
    most, degree = _most(met.starts), lists.shape[1]
    others, distances, slots = space(most)
    candidate_rows, chosen = np.empty(most, np.uint32), np.empty(degree, np.uint32)
    for i in range(met.vertices.size):
        first, last = met.starts[i], met.starts[i + 1]
        there, n = emptied(slots, last - first), 0
        for at in range(first, last):
            n = add_distinct(met.ids[at], others, n, there)
        n = min(_sorted(vectors, rows, met.vertices[i], others, distances, n, candidate_rows), candidates)
        degrees[i] = robust_prune(vectors, candidate_rows, distances, n, degree, rule, chosen)
        for j in range(degrees[i]):
            lists[i, j] = names[chosen[j]]


def unite_lists(
    vectors: NDArray[Any], rows: NDArray[np.uint32], names: NDArray[np.uint32], ends: Received, rule: PruneRule,
    lists: NDArray[np.uint32],
) -> None:  # fmt: skip
    """Fill the list of each vertex with the other ends of its edges, pruned if there are too many.

    Parameters
    ----------
    vectors, rows, names
        As for `choose_lists`.
    lists : uint32 array, shape (n_vertices, R)
        In ascending order of (distance, id), filled up with the vertex itself.
    """
    _unite(as_bits(vectors), rows, names, ends, rule, lists)


@kernel
def _unite(
    vectors: Any, rows: Any, names: Any, ends: Received, rule: PruneRule, lists: Any
) -> None:  # pragma: no cover - compiled
    most, degree = _most(ends.starts), lists.shape[1]
    others, distances = np.empty(most, np.uint32), np.empty(most, np.float32)
    candidate_rows, chosen = np.empty(most, np.uint32), np.empty(degree, np.uint32)
    for i in range(ends.vertices.size):
        v, first, n = ends.vertices[i], ends.starts[i], ends.starts[i + 1] - ends.starts[i]
        others[:n] = ends.ids[first : first + n]
        n = _sorted(vectors, rows, v, others, distances, n, candidate_rows)
        if n > degree:
            n = robust_prune(vectors, candidate_rows, distances, n, degree, rule, chosen)
            for j in range(n):
                others[j] = names[chosen[j]]
            n = _sorted(vectors, rows, v, others, distances, n, candidate_rows)
        lists[i, :n] = others[:n]
        lists[i, n:] = v


@kernel
def _most(starts: Any) -> int:  # pragma: no cover - compiled
    most = 1
    for i in range(starts.size - 1):
        most = max(most, starts[i + 1] - starts[i])
    return most


@kernel
def _sorted(
    vectors: Any, rows: Any, vertex: Any, others: Any, distances: Any, n: int, candidate_rows: Any
) -> Any:  # pragma: no cover - compiled
    """Sort the first `n` others by (distance, id), once each, and find their rows; return how many remain."""
    for j in range(n):
        candidate_rows[j] = rows[others[j]]
    squared_distances(vectors, np.int64(rows[vertex]), vectors, candidate_rows, n, distances)
    left = sort_candidates(others, distances, n)
    for j in range(left):
        candidate_rows[j] = rows[others[j]]
    return left


def missing(received: Received, rows: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the ids received of vectors that are not in memory, vertex by vertex, and the start of each vertex's ids.

    Parameters
    ----------
    rows : uint32 array, shape (n_vectors,)
        `NOBODY` for vectors that are not in memory.

    Returns
    -------
    missing : uint32 array
    starts : int64 array, shape (m + 1,)
    """
    starts = np.zeros(len(received.starts), np.int64)
    strays = np.empty(
        int(received.starts[-1] - received.starts[0]), np.uint32
    )  # takes memory as far as it is written
    return strays[: int(_lack(received.ids, received.starts, rows, starts, strays))], starts


@kernel
def _lack(ids: Any, bounds: Any, rows: Any, starts: Any, strays: Any) -> int:  # pragma: no cover - compiled
    total = 0
    for i in range(bounds.size - 1):
        for at in range(bounds[i], bounds[i + 1]):
            if rows[ids[at]] == NOBODY:
                strays[total] = ids[at]
                total += 1
        starts[i + 1] = total
    return total
