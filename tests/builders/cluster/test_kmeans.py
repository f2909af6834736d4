"""k-means by mini-batches: as good as scikit-learn's, by codes as by floats, the same on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.processes.memory import peak_growth

from indexmill.builders.cluster import kmeans
from indexmill.builders.cluster.kmeans import MovedCentroids, distinct_rows, fit_centroids, kmeans_bytes
from indexmill.builders.nearest.products import nearest_points
from indexmill.reader.threads import small_blocks


def clustered(n: int, dim: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(40, dim)) * 3
    return (centres[rng.integers(0, 40, n)] + rng.normal(size=(n, dim))).astype(np.float32)


def error(rows: np.ndarray, centroids: np.ndarray) -> float:
    nearest = centroids[nearest_points(rows, centroids)[:, 0]]
    return float(np.square(rows - nearest, dtype=np.float64).sum(axis=1).mean())


@pytest.mark.parametrize(
    ("dim", "dtype"), [(2, np.float32), (24, np.float32), (24, np.uint8), (24, np.float16)]
)
def test_error_is_at_most_that_of_scikit_learn(dim: int, dtype: type) -> None:
    from sklearn.cluster import MiniBatchKMeans

    rows = clustered(20_000, dim)
    rows = (
        np.rint(np.clip(10 * rows + 128, 0, 255)).astype(dtype) if dtype == np.uint8 else rows.astype(dtype)
    )
    peer = MiniBatchKMeans(
        200, init="random", random_state=1, batch_size=1024, n_init=1, max_iter=4, max_no_improvement=None
    ).fit(rows.astype(np.float32))
    ours = fit_centroids(rows, 200, seed=1)
    assert ours.shape == (200, dim)
    assert error(rows, ours) < 1.005 * error(rows, peer.cluster_centers_.astype(np.float32))


def test_codes_lose_nothing_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = clustered(20_000, 24)
    coded = fit_centroids(rows, 200, seed=1)
    monkeypatch.setattr(kmeans, "MAX_DIM", 0)
    exact = fit_centroids(rows, 200, seed=1)
    assert not np.array_equal(coded, exact)
    assert error(rows, coded) < 1.005 * error(rows, exact)


def test_floats_are_compared_where_a_step_of_the_codes_hides_most_components() -> None:
    rows = clustered(5000, 24)
    assert MovedCentroids(rows[:300].copy(), rows[300:600]).is_coded
    rows[::2, 0] += 3000
    assert not MovedCentroids(rows[:300].copy(), rows[300:600]).is_coded


@pytest.mark.parametrize("far", [0, 3000])  # by codes, by floats
def test_centroids_are_the_same_for_any_number_of_threads(far: float) -> None:
    rows = clustered(6000, 24)
    rows[::2, 0] += far
    with small_blocks(64):
        one, three = (fit_centroids(rows, 100, seed=3, threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, three)


def test_every_centroid_is_used_where_most_rows_are_equal() -> None:
    rows = np.vstack([np.zeros((5000, 6), np.float32), clustered(1000, 6)])
    found = fit_centroids(rows, 60, seed=1)
    used = np.bincount(nearest_points(rows, found)[:, 0], minlength=60)
    assert used.all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int8])
@pytest.mark.parametrize(("n", "dim", "values"), [(1, 3, 2), (3000, 1, 9), (3000, 5, 3), (2500, 40, 200)])
def test_distinct_rows_are_those_of_numpy(dtype: type, n: int, dim: int, values: int) -> None:
    random = np.random.default_rng(n + dim)
    rows = random.integers(-values // 2, values // 2 + 1, (n, dim)).astype(dtype)
    rows = np.vstack([rows, rows[random.integers(0, n, n)]])  # each other row is there again
    if dtype in (np.float32, np.float16):
        rows[rows == 0] *= random.choice([-1, 1], (rows == 0).sum()).astype(dtype)  # 0.0 and -0.0
    np.testing.assert_array_equal(rows[distinct_rows(rows)], np.unique(rows, axis=0))
    np.testing.assert_array_equal(rows[distinct_rows(rows[::2]) * 2], np.unique(rows[::2], axis=0))


def test_each_distinct_row_is_a_centroid_where_there_are_fewer_than_asked_for() -> None:
    few = clustered(30, 6)
    found = fit_centroids(few[np.random.default_rng(1).integers(0, 30, 5000)], 60, seed=1)
    np.testing.assert_allclose(np.unique(found, axis=0), np.unique(few, axis=0), rtol=1e-5)


#: A mapped sample, four fifths of which are one row, the others any of `distinct`.
SAMPLE = """
import numpy as np
from indexmill.builders.cluster.kmeans import fit_centroids
random = np.random.default_rng(1)
which = random.integers(0, {distinct}, 200_000) * (random.random(200_000) > 0.8)
np.save(path / "rows.npy", random.normal(size=({distinct}, 64)).astype(np.float32)[which])
rows = np.load(path / "rows.npy", mmap_mode="r")
fit_centroids(rows[:3000], 10, 1)  # compiles, and loads BLAS
"""


@pytest.mark.memory
@pytest.mark.parametrize("distinct", [50, 30_000])
def test_a_sample_with_few_distinct_rows_takes_the_memory_that_is_counted(distinct: int) -> None:
    grown = peak_growth(SAMPLE.format(distinct=distinct), "fit_centroids(rows, 1000, 1)")
    assert grown < kmeans_bytes(200_000, 64, 1000, 1)
