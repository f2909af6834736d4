"""k-means centroids from a sample (scikit-learn's MiniBatchKMeans)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans

#: Passes over the sample at most; mini-batch k-means settles well before on the data we know.
_MAX_ITERATIONS = 20


def fit_centroids(sample: NDArray[Any], n_clusters: int, seed: int) -> NDArray[np.float32]:
    """Cluster `sample` and return the centroids.

    Parameters
    ----------
    sample : array, shape (n_sample, dim)
    n_clusters : int
        Wanted; fewer come back when the sample has fewer distinct rows.
    seed : int

    Returns
    -------
    float32 array, shape (at most n_clusters, dim)
    """
    rows = np.ascontiguousarray(sample, dtype=np.float32)
    if n_clusters >= len(rows) or n_clusters == 1:
        distinct = np.unique(rows, axis=0)
        return (
            distinct if n_clusters > 1 and len(distinct) <= n_clusters else rows.mean(axis=0, keepdims=True)
        )
    if len(distinct := np.unique(rows[: 4 * n_clusters], axis=0)) < n_clusters:
        distinct = np.unique(rows, axis=0)
        n_clusters = min(n_clusters, len(distinct))
    model = MiniBatchKMeans(
        n_clusters=n_clusters,
        random_state=seed,
        batch_size=max(1024, 2 * n_clusters),
        n_init=1,
        max_iter=_MAX_ITERATIONS,
    )
    model.fit(rows)
    return np.asarray(model.cluster_centers_, dtype=np.float32)
