"""Exact nearest neighbours by computing every distance in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def exact_neighbours(
    vectors: NDArray[Any], queries: NDArray[Any], k: int, metric: str = "l2"
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the k nearest vectors of each query, best first, ties by the smaller vector id.

    Parameters
    ----------
    vectors : array, shape (n, dim)
    queries : array, shape (n_queries, dim)
    metric : {"l2", "ip", "cosine"}

    Returns
    -------
    vector_ids : int64 array, shape (n_queries, k)
    scores : float64 array, shape (n_queries, k)
        Squared distance, inner product or cosine.
    """
    x, q = vectors.astype(np.float64), queries.astype(np.float64)
    ids = np.empty((len(q), k), np.int64)
    scores = np.empty((len(q), k), np.float64)
    for i, query in enumerate(q):
        if metric == "l2":
            all_scores = ((x - query) ** 2).sum(axis=1)
            order = np.argsort(all_scores, kind="stable")
        else:
            all_scores = x @ query
            if metric == "cosine":
                all_scores /= np.linalg.norm(x, axis=1) * np.linalg.norm(query)
            order = np.argsort(-all_scores, kind="stable")
        ids[i], scores[i] = order[:k], all_scores[order[:k]]
    return ids, scores
