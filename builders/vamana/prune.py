"""Robust prune (DiskANN Algorithm 2), computed by the reader's native kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import prune_sorted, sort_pairs


class PruneRule(NamedTuple):
    """Parameters of a prune.

    Attributes
    ----------
    alpha : float
        Slack, at least 1.
    saturate : bool
        Whether free places are filled with the nearest dropped candidates.
    """

    alpha: float
    saturate: bool = True


@kernel
def sort_candidates(ids: Any, distances: Any, n: int) -> Any:  # pragma: no cover - compiled
    """Sort the first `n` candidates by (distance, id) in place, drop repeated ids, return how many remain.

    Parameters
    ----------
    ids, distances : uint32 and float32 arrays, shape (at least n,), contiguous
    """
    left: int = sort_pairs(ids.ctypes.data, distances.ctypes.data, n)
    return left


@kernel
def robust_prune(
    vectors: Any, ids: Any, distances: Any, n: int, max_degree: int, rule: PruneRule, out: Any
) -> int:  # pragma: no cover - compiled
    """Choose at most `max_degree` neighbours among candidates sorted by (distance, id).

    A candidate c is dropped when a chosen neighbour p satisfies ``alpha * d(p, c) < d(v, c)`` or equals c. As in
    DiskANN's published code, and unlike its paper, d is the squared distance, and the choice runs in rounds of growing
    slack (1, 1.2, ... alpha), so that long edges are chosen before the slack fills the list. Free places may be filled
    with the nearest dropped candidates (DiskANN's `saturate_graph`): a node block has R places on its page, used or
    not, and they help a search that reads pages. A search in memory computes fewer distances without them.

    Time: at most ``n R`` distances. Memory of each thread: 4 bytes a candidate, and a copy of R vectors.

    Parameters
    ----------
    vectors : array, shape (n_vectors, dim), C-contiguous
        As `reader.kernels.squared_distances` takes them.
    ids, distances : uint32 and float32 arrays, shape (at least n,), contiguous
        Candidates, without the vertex itself, and their squared distances to it.
    out : uint32 array, shape (at least max_degree,), contiguous
        Receives the chosen neighbours, in the order of choice.

    Returns
    -------
    int
        Number of neighbours chosen.
    """
    return prune_sorted(vectors, ids, distances, n, max_degree, rule.alpha, rule.saturate, out)
