"""Matrix-product builders: PQ, nearest points, exact neighbours, k-means, scalar quantization."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.builders.cluster.kmeans import fit_centroids
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.nearest.products import nearest_points
from indexmill.builders.quantize.pq import encode_pq, train_pq
from indexmill.builders.quantize.scalar import fit_scale
from indexmill.builders.vamana.build import build_vamana
from indexmill.builders.vamana.entries import entry_vertices, medoid, n_entries
from indexmill.builders.vamana.graph import VamanaParameters
from indexmill.reader.threads import small_blocks

RNG = np.random.default_rng(0)


def clustered(n: int, dim: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(20, dim)) * 5
    return (centres[rng.integers(0, 20, n)] + rng.normal(size=(n, dim))).astype(np.float32)


def naive_squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    difference = a[:, None, :].astype(np.float64) - b[None, :, :].astype(np.float64)
    return (difference**2).sum(axis=2)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 9), st.integers(0, 2**31))
def test_nearest_points_are_the_nearest(n: int, n_points: int, dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, points = rng.integers(0, 50, (n, dim)), rng.integers(0, 50, (n_points, dim)).astype(np.float32)
    fanout = min(2, n_points)
    expected = np.argsort(naive_squared(vectors, points), axis=1, kind="stable")[:, :fanout]
    np.testing.assert_array_equal(nearest_points(vectors, points, fanout), expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_exact_neighbours_agree_with_sorting_all_distances(dtype: type) -> None:
    base = RNG.integers(0, 30, (700, 6)).astype(dtype)  # many ties
    queries = RNG.integers(0, 30, (25, 6)).astype(dtype)
    ids, distances = exact_neighbours(base, queries, 10, threads=2)
    all_distances = naive_squared(queries, base)
    np.testing.assert_allclose(distances, np.sort(all_distances, axis=1)[:, :10])
    np.testing.assert_allclose(np.take_along_axis(all_distances, ids.astype(np.int64), 1), distances)


def test_exact_neighbours_can_leave_the_query_out() -> None:
    base = RNG.normal(size=(300, 8)).astype(np.float32)
    rows = np.array([5, 250])
    ids, _ = exact_neighbours(base, base[rows], 299, skip=rows)
    for row, found in zip(rows, ids, strict=True):
        assert sorted(found.tolist()) == sorted(set(range(300)) - {row})


@pytest.mark.parametrize("offset", [0, 1000, 100_000])
def test_far_from_the_origin_neighbours_are_still_exact(offset: int) -> None:
    rng = np.random.default_rng(3)
    base = (rng.normal(size=(3000, 16)) + offset).astype(np.float32)
    queries = (rng.normal(size=(20, 16)) + offset).astype(np.float32)
    ids, _ = exact_neighbours(base, queries, 10)
    np.testing.assert_array_equal(
        np.sort(ids), np.sort(np.argsort(naive_squared(queries, base), axis=1)[:, :10])
    )


def test_pq_learns_all_of_a_sorted_sample() -> None:
    rng = np.random.default_rng(4)
    sample = np.concatenate([rng.normal(size=(70_000, 4)), rng.normal(size=(30_000, 4)) + 50]).astype(
        np.float32
    )
    codebook = train_pq(sample, 2, seed=1)
    restored = np.hstack([
        codebook.pivots[codes, 2 * j : 2 * j + 2] for j, codes in enumerate(encode_pq(sample[-1000:], codebook).T)
    ])  # fmt: skip
    assert ((restored - sample[-1000:]) ** 2).sum(axis=1).mean() < 1


@pytest.mark.parametrize(("dim", "offset"), [(10, 0), (10, 1000), (42, 0), (42, 1000)])
def test_codes_are_the_nearest_centres(dim: int, offset: int) -> None:
    vectors = clustered(900, dim) + np.float32(offset)
    codebook = train_pq(vectors, 4, seed=1)
    codes = encode_pq(vectors, codebook, threads=2)
    assert codes.shape == (900, 4)
    for j in range(4):
        columns = slice(int(codebook.offsets[j]), int(codebook.offsets[j + 1]))
        distances = naive_squared(vectors[:, columns], codebook.pivots[:, columns])
        chosen = np.take_along_axis(distances, codes[:, j : j + 1].astype(np.int64), 1)[:, 0]
        np.testing.assert_allclose(chosen, distances.min(axis=1), rtol=1e-3, atol=1e-3)


def test_pq_error_is_close_to_that_of_scikit_learn() -> None:
    from sklearn.cluster import KMeans

    vectors = clustered(2000, 4)
    codebook = train_pq(vectors, 1, seed=1)
    ours = naive_squared(vectors, codebook.pivots).min(axis=1).mean()
    peer = KMeans(256, n_init=1, random_state=0).fit(vectors).inertia_ / len(vectors)
    assert ours < 1.25 * peer


def test_pq_is_the_same_for_any_number_of_threads() -> None:
    vectors = clustered(500, 12)
    with small_blocks(64):
        one, two = (train_pq(vectors, 5, seed=3, threads=t) for t in (1, 2))
        np.testing.assert_array_equal(one.pivots, two.pivots)
        np.testing.assert_array_equal(encode_pq(vectors, one, 1), encode_pq(vectors, two, 3))


@pytest.mark.parametrize(("n", "dim", "n_chunks"), [(1, 1, 32), (3, 2, 32), (100, 7, 3), (300, 50, 32)])
def test_small_inputs_get_fewer_centres_and_chunks(n: int, dim: int, n_chunks: int) -> None:
    vectors = clustered(n, dim)
    codebook = train_pq(vectors, n_chunks, seed=1)
    assert codebook.pivots.shape == (min(256, n), dim)
    assert len(codebook.offsets) == min(n_chunks, dim) + 1
    assert np.isfinite(codebook.pivots).all()
    assert encode_pq(vectors, codebook).max() < min(256, n)


def test_pq_of_identical_vectors_has_no_error() -> None:
    vectors = np.full((400, 6), 7, np.uint8)
    codebook = train_pq(vectors, 3, seed=1)
    np.testing.assert_array_equal(codebook.pivots[encode_pq(vectors, codebook)[0, 0], :2], [7, 7])


@pytest.mark.parametrize(("distinct", "wanted"), [(1, 8), (3, 8), (500, 8)])
def test_centroids_are_never_more_than_distinct_rows(distinct: int, wanted: int) -> None:
    rows = np.repeat(clustered(distinct, 3), 4, axis=0)
    centroids = fit_centroids(rows, wanted, seed=1)
    assert 1 <= len(centroids) <= min(distinct, wanted)
    assert centroids.dtype == np.float32


def test_medoid_is_the_row_nearest_to_the_mean() -> None:
    vectors = clustered(3000, 5)
    mean = vectors.mean(axis=0, dtype=np.float64)
    assert (
        medoid(vectors, mean, block_bytes=4 * 700 * vectors.shape[1])
        == naive_squared(vectors, mean[None]).argmin()
    )


def test_entry_vertices_are_nearly_always_the_nearest() -> None:
    vectors = clustered(2000, 8)
    graph = build_vamana(vectors, 0, VamanaParameters(16, 40, 1.2), seed=1)
    centroids = fit_centroids(vectors, n_entries(1024, 2000), seed=1)
    found = entry_vertices(vectors, graph, centroids)
    nearest = naive_squared(centroids, vectors).argmin(axis=1)
    assert (found == nearest).mean() > 0.95


@pytest.mark.parametrize("bits", [8, 16])
def test_scalar_codes_are_within_half_a_step(bits: int) -> None:
    vectors = clustered(400, 6)
    vectors[:, 2] = 1.5  # a component without a range
    scale = fit_scale(vectors.min(axis=0), vectors.max(axis=0), bits)
    restored = scale.minimum + scale.step * scale.encode(vectors)
    assert (np.abs(restored - vectors) <= scale.step * 0.51 + 1e-5).all()
