"""k-means centroids from a sample (scikit-learn's MiniBatchKMeans).

The number of steps is fixed, because early stopping would depend on a sum whose rounding depends on the number of
threads. The first centroids are rows drawn at random, because k-means++ takes as long as all steps together and does
not reduce the error after them (1,024 centroids of 100,000 SIFT vectors: within 0.1%).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from threadpoolctl import threadpool_limits

from indexmill.builders.gpu import Gpu, uploaded
from indexmill.builders.nearest.products import origin_of
from indexmill.builders.quantize.gpu import lloyd_on

#: Passes over the sample; the fifth gains 0.2% on SIFT vectors.
PASSES = 4
#: Iterations on a GPU, each over the whole sample.
_GPU_ITERATIONS = 10


def fit_centroids(
    sample: NDArray[Any], n_clusters: int, seed: int, threads: int = 1, gpu: Gpu | None = None
) -> NDArray[np.float32]:
    """Cluster `sample` and return the centroids.

    Parameters
    ----------
    sample : array, shape (n_sample, dim)
    n_clusters : int
        Wanted number; fewer are returned if the sample has fewer distinct rows.
    seed : int
    threads : int
        Does not change the result.
    gpu : Gpu, optional
        Computes other centroids of equal quality, by `centroids_on`.

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
    if gpu is not None and n_clusters < len(rows):
        return centroids_on(gpu, rows, n_clusters, seed)
    with threadpool_limits(threads, user_api="openmp"):
        model = mini_batches(n_clusters, seed).fit(rows)
    return np.asarray(model.cluster_centers_, dtype=np.float32)


def mini_batches(n_clusters: int, seed: int) -> MiniBatchKMeans:
    """Return the model that `fit_centroids` fits; a batch has two rows for each centroid, at least 1,024."""
    return MiniBatchKMeans(
        n_clusters=n_clusters,
        init="random",
        random_state=seed,
        batch_size=max(1024, 2 * n_clusters),
        n_init=1,
        max_iter=PASSES,
        tol=0,
        max_no_improvement=None,
        compute_labels=False,  # unused, and as slow as a pass
    )


def centroids_on(gpu: Gpu, sample: NDArray[np.float32], n_clusters: int, seed: int) -> NDArray[np.float32]:
    """Return the centroids of k-means from random rows, float32 (n_clusters, dim).

    Deviation from `fit_centroids`: every iteration uses all rows instead of a mini-batch, so fewer iterations reach
    the same quality.

    GPU memory: the sample three times, the centroids eight times, and blocks of scores.

    Parameters
    ----------
    sample : float32 array, shape (n_sample, dim)
    n_clusters : int
        Less than n_sample.

    Raises
    ------
    BudgetError
        If the GPU's memory is too small.
    """
    origin = origin_of(sample)
    chosen = np.sort(np.random.default_rng(seed).choice(len(sample), n_clusters, replace=False))
    with gpu.use("the rows that k-means is trained on") as xp:
        points = (uploaded(xp, sample, np.float32) - xp.asarray(origin))[None]
        centres = lloyd_on(gpu, xp, points, points[:, xp.asarray(chosen)], _GPU_ITERATIONS)
    found: NDArray[np.float32] = centres[0] + origin
    return found
