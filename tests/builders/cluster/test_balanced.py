"""Balanced hierarchical k-means: loads of its cells, also on data that is hard to divide."""

from __future__ import annotations

import numpy as np
import pytest

from indexmill.builders.cluster.balanced import BALANCE_TOLERANCE, balanced_centroids
from indexmill.builders.cluster.kmeans import fit_centroids
from indexmill.builders.nearest.products import nearest_points
from indexmill.formats.errors import ConfigError


def loads(vectors: np.ndarray, centroids: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Vectors of each cell, as a fraction of the mean."""
    cells = nearest_points(vectors, centroids, weights=weights)[:, 0]
    return np.bincount(cells, minlength=len(centroids)) * len(centroids) / len(vectors)


def skewed(n: int, dim: int, seed: int) -> np.ndarray:
    """Clusters of very different size and width."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(20, dim)) * 4
    of = np.minimum(rng.geometric(0.3, n) - 1, 19)
    return (centres[of] + rng.normal(size=(n, dim)) * (0.2 + of[:, None] / 10)).astype(np.float32)


@pytest.mark.parametrize("k", [3, 5, 7, 16])
def test_cells_of_the_sample_are_balanced_where_k_means_is_not(k: int) -> None:
    sample = skewed(20_000, 12, 1)
    centroids, weights = balanced_centroids(sample, k, 1)
    assert centroids.shape == (k, 12)
    assert centroids.dtype == weights.dtype == np.float32
    found = loads(sample, centroids, weights)
    assert np.abs(found - 1).max() <= BALANCE_TOLERANCE + 2 * k / len(sample)
    assert np.abs(loads(sample, fit_centroids(sample, k, 1), np.zeros(k, np.float32)) - 1).max() > 0.1


@pytest.mark.parametrize("k", [2, 16, 64])
def test_new_vectors_fall_evenly_too(k: int) -> None:
    everything = np.random.default_rng(2).permutation(skewed(60_000, 12, 2))
    sample, others = everything[:30_000], everything[30_000:]
    centroids, weights = balanced_centroids(sample, k, 1)
    drawing = 4 * np.sqrt(k / len(sample) + k / len(others))
    assert np.abs(loads(others, centroids, weights) - 1).max() <= BALANCE_TOLERANCE + drawing


def test_cells_are_as_tight_as_those_of_k_means() -> None:
    sample = np.random.default_rng(3).normal(size=(10_000, 16)).astype(np.float32)
    centroids, weights = balanced_centroids(sample, 8, 1)
    plain = fit_centroids(sample, 8, 1)

    def within(points: np.ndarray, add: np.ndarray | None) -> float:
        cells = nearest_points(sample, points, weights=add)[:, 0]
        return float(np.square(sample - points[cells]).sum(axis=1).mean())

    assert within(centroids, weights) <= 1.03 * within(plain, None)


def test_integers_are_taken_as_they_are() -> None:
    sample = np.random.default_rng(4).integers(0, 256, (5000, 8), dtype=np.uint8)
    bytes_, floats = (balanced_centroids(rows, 6, 1) for rows in (sample, sample.astype(np.float32)))
    np.testing.assert_array_equal(bytes_[0], floats[0])
    np.testing.assert_array_equal(bytes_[1], floats[1])
    assert np.abs(loads(sample, *bytes_) - 1).max() <= BALANCE_TOLERANCE + 0.005


def test_result_is_the_same_for_any_number_of_threads() -> None:
    sample = skewed(20_000, 10, 5)
    one, three = (balanced_centroids(sample, 11, 1, threads) for threads in (1, 3))
    np.testing.assert_array_equal(one[0], three[0])
    np.testing.assert_array_equal(one[1], three[1])


def test_identical_rows_make_one_cluster() -> None:
    centroids, weights = balanced_centroids(np.full((1000, 4), 7, np.uint8), 16, 1)
    np.testing.assert_array_equal(centroids, np.full((1, 4), 7, np.float32))
    np.testing.assert_array_equal(weights, [0])


def test_fewer_distinct_rows_than_clusters_give_one_cluster_each() -> None:
    distinct = np.random.default_rng(6).normal(size=(5, 4)).astype(np.float32)
    centroids, weights = balanced_centroids(np.repeat(distinct, 200, axis=0), 16, 1)
    assert len(centroids) == 5
    np.testing.assert_allclose(np.sort(centroids[:, 0]), np.sort(distinct[:, 0]), rtol=1e-6)
    np.testing.assert_array_equal(loads(distinct, centroids, weights), np.ones(5))


def test_fewer_rows_than_clusters_give_a_cluster_a_row() -> None:
    sample = np.random.default_rng(7).normal(size=(10, 4)).astype(np.float32)
    assert len(balanced_centroids(sample, 64, 1)[0]) == 10
    assert len(balanced_centroids(sample[:1], 64, 1)[0]) == 1


def test_one_dense_giant_cluster_is_divided() -> None:
    rng = np.random.default_rng(8)
    scale = np.where(rng.random(20_000) < 0.95, 0.001, 10)[:, None]
    sample = (5 + scale * rng.normal(size=(20_000, 8))).astype(np.float32)
    found = loads(sample, *balanced_centroids(sample, 32, 1))
    assert len(found) == 32
    assert np.abs(found - 1).max() <= 2 * BALANCE_TOLERANCE


def test_equal_rows_keep_together_and_the_others_are_still_divided() -> None:
    rng = np.random.default_rng(9)
    sample = rng.normal(size=(20_000, 8)).astype(np.float32)
    sample[rng.random(20_000) < 0.5] = 0
    centroids, weights = balanced_centroids(sample, 16, 1)
    counts = np.sort(loads(sample, centroids, weights) * len(sample) / len(centroids))
    assert counts[-1] == pytest.approx(10_000, rel=0.1)
    assert counts[-2] <= 2.5 * 20_000 / 16
    assert counts[0] >= 0.4 * 20_000 / 16


def test_an_extreme_outlier_changes_nothing_for_the_others() -> None:
    sample = np.random.default_rng(10).normal(size=(20_000, 8)).astype(np.float32)
    sample[3], sample[4] = 1e15, -1e30
    centroids, weights = balanced_centroids(sample, 32, 1)
    assert np.isfinite(centroids).all()
    assert np.isfinite(weights).all()
    assert np.abs(loads(sample[5:], centroids, weights) - 1).max() <= 2 * BALANCE_TOLERANCE


def test_vectors_far_from_zero_are_balanced() -> None:
    sample = np.random.default_rng(11).normal(size=(20_000, 8)).astype(np.float32) + np.float32(1e4)
    assert np.abs(loads(sample, *balanced_centroids(sample, 16, 1)) - 1).max() <= 2 * BALANCE_TOLERANCE


@pytest.mark.parametrize(("rows", "k"), [(0, 2), (10, 0)])
def test_no_clusters_and_no_rows_are_refused(rows: int, k: int) -> None:
    with pytest.raises(ConfigError, match="n_clusters"):
        balanced_centroids(np.zeros((rows, 4), np.float32), k, 1)
