"""k-means centroids from a sample, by mini-batches (Sculley, WWW 2010).

The first centroids are distinct rows drawn at random, because k-means++ takes as long as all steps together and does
not reduce the error after them (1,024 centroids of 100,000 SIFT vectors: within 0.1%). The number of steps is fixed.

Deviations from the paper: a batch has eight rows for each centroid, and passes over the sample without replacement.
After a pass, counts are quartered, so that a centroid forgets the rows that chose it while it was elsewhere: 1 to 2%
less error than without. A row's nearest centroid is found by byte codes where they choose as well as floats.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.gpu import Gpu, uploaded
from indexmill.builders.nearest.byte_codes import fit_codes, nearest_coded
from indexmill.builders.nearest.panels import MAX_DIM, in_panels
from indexmill.builders.nearest.products import TILE_ROWS, nearest_points, origin_of
from indexmill.builders.quantize.gpu import lloyd_on
from indexmill.formats.kernel import kernel

#: Passes over the sample; the fourth gains 0.2% on SIFT vectors, and 0.3% on embeddings.
PASSES = 4
#: Rows of a batch for each centroid, and at least.
_ROWS_EACH, _LEAST_ROWS = 8, 1024
#: Rows that codes are tried with, and how much farther the centroids that they choose may be.
_TRIALS, _FARTHER = 256, 1.001
#: Iterations on a GPU, each over the whole sample.
_GPU_ITERATIONS = 10
#: Rows that `distinct_rows` compares at a time, and bytes that it takes for each row.
_COMPARED, _SORTED_BYTES = 1024, 48


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
    if n_clusters == 1:
        mean: NDArray[np.float32] = np.asarray(sample, np.float32).mean(axis=0, keepdims=True)
        return mean
    if n_clusters >= len(sample):
        return np.unique(np.asarray(sample, np.float32), axis=0)
    rng = np.random.default_rng(seed)

    def drawn(size: int) -> NDArray[np.float32]:
        chosen = np.sort(rng.choice(len(sample), min(size, len(sample)), replace=False))
        return np.asarray(sample[chosen], dtype=np.float32)

    distinct, rows = np.unique(drawn(4 * n_clusters), axis=0), None
    if len(distinct) < n_clusters:
        rows = distinct_rows(sample)
        n_clusters = min(n_clusters, len(rows))
    if gpu is not None:
        return centroids_on(gpu, np.ascontiguousarray(sample, dtype=np.float32), n_clusters, seed)
    chosen = rng.choice(len(distinct if rows is None else rows), n_clusters, replace=False)
    first = distinct[chosen] if rows is None else np.asarray(sample[rows[chosen]], np.float32)
    moved, size = MovedCentroids(first, drawn(_TRIALS), threads), batch_size(n_clusters)
    for _ in range(PASSES):
        moved.forget()
        order = rng.permutation(len(sample))
        for at in range(0, len(sample), size):
            moved.move(np.asarray(sample[np.sort(order[at : at + size])], dtype=np.float32))
    return moved.centroids


def distinct_rows(sample: NDArray[Any]) -> NDArray[np.int64]:
    """Return one row of each set of equal rows, in ascending order of their components, the first counting most.

    These rows are ``np.unique(sample, axis=0)``, without a copy of them. Memory: 48 bytes a row of the sample.

    Parameters
    ----------
    sample : array, shape (n, dim)
        At least one row; perhaps a mapped file.

    Returns
    -------
    int64 array, shape (at most n,)
    """
    sample = np.ascontiguousarray(sample)
    order = np.argsort(sample.view(np.dtype((np.void, sample[0].nbytes)))[:, 0], kind="stable")  # by bytes
    is_new = np.ones(len(order), bool)
    for at in range(0, len(order) - 1, _COMPARED):
        some = sample[order[at : at + _COMPARED + 1]]
        is_new[at + 1 : at + len(some)] = (some[1:] != some[:-1]).any(axis=1)
    rows = order[is_new]
    ranks = np.zeros(len(rows), np.int64)  # by the columns so far
    for column in range(sample.shape[1]):
        values = np.asarray(sample[rows, column], np.float32)
        order = np.lexsort((values, ranks))
        values, before = values[order], ranks[order]
        rises = (before[1:] != before[:-1]) | (values[1:] != values[:-1])
        ranks[order[0]], ranks[order[1:]] = 0, np.cumsum(rises)
        if rises.all():
            break
    found: NDArray[np.int64] = rows[np.unique(ranks, return_index=True)[1]]  # 0.0 and -0.0 are equal
    return found


def batch_size(n_clusters: int) -> int:
    """Return the rows of a mini-batch."""
    return max(_LEAST_ROWS, _ROWS_EACH * n_clusters)


def kmeans_bytes(n_sample: int, dim: int, n_clusters: int, threads: int) -> int:
    """Return the memory of `fit_centroids` besides the sample: a batch, and the centroids as they are and in codes.

    Products of codes hold blocks of codes on each thread; those of floats, blocks of rows and scores. Before, distinct
    rows may be looked for in the whole sample.
    """
    batch = min(n_sample, batch_size(n_clusters)) * (6 * dim + 32)
    moving = 8 * n_sample + batch + n_clusters * 20 * dim + threads * ((2 << 20) + 4096 * dim) + (8 << 20)
    return max(moving, _SORTED_BYTES * n_sample + n_clusters * 20 * dim)


class MovedCentroids:
    """Centroids that move towards batches of rows.

    Parameters
    ----------
    centroids : float32 array, shape (k, dim)
        Where they start; moved in place.
    trials : float32 array, shape (any, dim)
        Rows that byte codes are tried with.
    threads : int
        Does not change the result.

    Attributes
    ----------
    is_coded : bool
        Whether codes are compared.
    """

    def __init__(self, centroids: NDArray[np.float32], trials: NDArray[np.float32], threads: int = 1) -> None:
        self.centroids = centroids
        self._counts = np.zeros(len(centroids), np.int64)
        self._threads = threads
        self._codes = fit_codes(centroids)
        self.is_coded = centroids.shape[1] <= MAX_DIM
        if self.is_coded:
            near, far = (
                np.square(trials - centroids[nearest(trials)], dtype=np.float64).sum()
                for nearest in (self._nearest_exactly, self._nearest)
            )
            self.is_coded = bool(far <= _FARTHER * near)

    def move(self, rows: NDArray[np.float32]) -> None:
        """Move every centroid to the mean of the rows, of this batch and those before, that are nearest to it."""
        _move(rows, self._nearest(rows), self.centroids, self._counts)

    def forget(self) -> None:
        """Let the rows so far count less."""
        self._counts //= 4

    def _nearest(self, rows: NDArray[np.float32]) -> NDArray[np.uint32]:
        if not self.is_coded:
            return self._nearest_exactly(rows)
        panels = in_panels(self._codes.encode(self.centroids))
        return nearest_coded(self._codes, rows, panels, 1, self._threads)[:, 0]

    def _nearest_exactly(self, rows: NDArray[np.float32]) -> NDArray[np.uint32]:
        return nearest_points(rows, self.centroids, 1, self._threads, block_rows=TILE_ROWS)[:, 0]


@kernel
def _move(rows: Any, nearest: Any, centroids: Any, counts: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(rows)):
        c = nearest[i]
        counts[c] += 1
        share = np.float32(1) / np.float32(counts[c])
        for j in range(rows.shape[1]):
            centroids[c, j] += (rows[i, j] - centroids[c, j]) * share


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
