"""Right and wrong results of a search.

A result counts as found if it is one of the k true neighbours, or lies no farther than the k-th of them:
about one query in a hundred ties there, and then either answer is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from indexmill.jobs.score.queries import QuerySet
    from indexmill.reader.index import SearchResult

#: Two float32 sums of a few hundred squares in a different order differ by less than this fraction.
DISTANCE_TOLERANCE = 2e-6


def right_answers(
    found: SearchResult, queries: QuerySet, k: int, metric: str, exact: bool
) -> NDArray[np.bool_]:
    """Tell which of each query's first k results are right, without its own row; bool array, shape (n_queries, k).

    Parameters
    ----------
    metric : {"l2", "ip", "cosine"}
        Of the index.
    exact : bool
        Whether the index stores its vectors as they were read. Rounded vectors (sq8, sq16, float16 of float32) have
        rounded distances: there only the ids count, which can miss a tie but never takes a wrong answer for a right
        one. The same holds under inner product, and for a truth file whose distances are not squared Euclidean ones.
    """
    ids, scores = found.vector_ids, found.scores
    if queries.own is not None:
        ids, scores = drop_own(ids, scores, queries.own)
    ids, scores = ids[:, :k], scores[:, :k]
    truth = queries.truth_ids[:, :k]
    same = ids[:, :, None] == truth[:, None, :]
    right = same.any(axis=2)
    distances = squared_distances(scores, metric)
    truth_distances = queries.truth_distances[:, :k]
    if distances is not None and exact and agree(distances, truth_distances, same):
        limit = queries.truth_distances[:, k - 1 : k] * (1 + DISTANCE_TOLERANCE)
        right |= distances <= limit  # NaN, a missing result, compares false
    right &= ids >= 0
    return np.asarray(right)


def agree(found: NDArray[np.float64], truth: NDArray[np.float32], same: NDArray[np.bool_]) -> bool:
    """Whether measured and true distances, shapes (n, k) and (n, k), are alike where ids are the same, (n, k, k)."""
    query, i, j = np.nonzero(same)
    ours, theirs = found[query, i], truth[query, j].astype(np.float64)
    alike = np.abs(ours - theirs) <= 1e-3 * np.maximum(np.abs(ours), np.abs(theirs)) + 1e-6
    return bool(alike.mean() > 0.9) if len(alike) else False


def squared_distances(scores: NDArray[np.float32], metric: str) -> NDArray[np.float64] | None:
    """Turn scores back into squared distances; None where the metric's scores do not tell them."""
    if metric == "l2":
        return scores.astype(np.float64)
    if metric == "cosine":
        return 2.0 * (1.0 - scores.astype(np.float64))
    return None


def drop_own(
    ids: NDArray[np.int64], beside: NDArray[Any], own: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Remove each query's own row from its k + 1 results, or the last one where it is not among them.

    Parameters
    ----------
    ids, beside : arrays, shape (n_queries, k + 1)
        Vector ids, and scores or slots in the same places.
    """
    mine = ids == own[:, None]
    mine[~mine.any(axis=1), -1] = True
    shape = (ids.shape[0], ids.shape[1] - 1)
    return ids[~mine].reshape(shape), beside[~mine].reshape(shape)
