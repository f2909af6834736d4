"""Points in panels, codes of a byte a component, and products in tiles: claims beside sorted distances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.builders.leaders.groups import LeaderGroups
from indexmill.builders.nearest import panels, products
from indexmill.builders.nearest.byte_codes import fit_codes, rank_exactly
from indexmill.builders.nearest.panels import (
    MAX_DIM,
    NO_SCORE,
    NOTHING,
    all_scores,
    in_panels,
    nearest_in_panels,
)
from indexmill.builders.nearest.points import Points
from indexmill.builders.nearest.products import nearest_points


def squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The slow and obvious way, in float64."""
    return ((a[:, None].astype(np.float64) - b[None].astype(np.float64)) ** 2).sum(axis=2)


def random_bytes(n: int, dim: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, dim)).astype(np.uint8)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 90), st.integers(1, 40), st.integers(1, 70), st.integers(0, 2**31))
def test_points_in_panels_are_found_in_order(n: int, n_points: int, dim: int, fanout: int, seed: int) -> None:
    vectors, points = random_bytes(n, dim, seed) % 7, random_bytes(n_points, dim, seed + 1) % 7  # many ties
    found = nearest_in_panels(vectors, in_panels(points), fanout, 1)
    expected = np.argsort(squared(vectors, points), axis=1, kind="stable")[:, :fanout]
    np.testing.assert_array_equal(found[:, :n_points], expected)
    assert (found[:, n_points:] == NOTHING).all()


def test_scores_are_squared_distances_less_the_vectors_own_norm() -> None:
    vectors, points = random_bytes(120, 21, 1), random_bytes(37, 21, 2)
    held = in_panels(points)
    out = np.empty((120, held.offsets.size), np.int32)
    all_scores(vectors, np.arange(120), held.bytes, held.offsets, out)
    norms = (vectors.astype(np.int64) ** 2).sum(axis=1)
    np.testing.assert_array_equal(out[:, :37] + norms[:, None], squared(vectors, points))
    assert (out[:, 37:] == NO_SCORE).all()


def test_groups_begin_with_panels_of_their_own() -> None:
    points, ids = random_bytes(40, 5, 3), np.arange(40, dtype=np.uint32)[::-1].copy()
    held = in_panels(points, ids, np.array([0, 17, 17, 18, 40]))
    assert held.starts.tolist() == [0, 2, 2, 3, 5]
    for g, (first, last) in enumerate([(0, 17), (17, 17), (17, 18), (18, 40)]):
        mine = held.ids[held.starts[g] : held.starts[g + 1]].ravel()
        np.testing.assert_array_equal(mine[: last - first], ids[first:last])
        assert (mine[last - first :] == NOTHING).all()


@pytest.mark.parametrize("dim", [MAX_DIM, MAX_DIM + 1])
def test_vectors_too_long_for_integers_are_compared_all_the_same(dim: int) -> None:
    leaders = np.full((3, dim), 255, np.uint8)
    leaders[1], leaders[2, : dim // 3] = 0, 0
    index = Points(leaders)
    assert panels.fits_panels(leaders) == (dim <= MAX_DIM)
    np.testing.assert_array_equal(index.nearest(leaders, 3), [[0, 2, 1], [1, 2, 0], [2, 0, 1]])


@pytest.mark.parametrize("fanout", [1, 3])
def test_tiles_of_a_product_change_nothing(fanout: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = random_bytes(700, 9, 4)
    points = random_bytes(600, 9, 5).astype(np.float32)
    whole = nearest_points(vectors, points, fanout)
    monkeypatch.setattr(products, "TILE_ROWS", 64)
    monkeypatch.setattr(products, "TILE_POINTS", 48)
    np.testing.assert_array_equal(nearest_points(vectors, points, fanout), whole)
    expected = np.argsort(squared(vectors, points), axis=1, kind="stable")[:, :fanout]
    np.testing.assert_array_equal(whole, expected)


def test_codes_keep_the_order_of_distances_within_their_step() -> None:
    vectors = np.random.default_rng(6).normal(5, [1, 3, 0.1, 2], (500, 4)).astype(np.float32)
    codes = fit_codes(vectors)
    held = codes.encode(vectors)
    inside = (held > 0) & (held < 255)
    assert inside.mean() > 0.99
    decoded = codes.low + codes.step * held
    assert np.abs(decoded - vectors)[inside].max() <= 0.501 * codes.step


def test_codes_of_equal_vectors_are_equal() -> None:
    vectors = np.full((10, 3), 7.25, np.float32)
    assert (np.ptp(fit_codes(vectors).encode(vectors), axis=0) == 0).all()


def test_candidates_are_ranked_by_distance_then_id() -> None:
    points = np.array([[0], [2], [-2], [5], [1]], np.float32)
    found = np.empty((2, 3), np.uint32)
    candidates = np.array([[3, 2, 1, 4], [1, 0, 2, 3]], np.uint32)
    rank_exactly(np.array([[0], [4]], np.float32), points, candidates, found)
    np.testing.assert_array_equal(found, [[4, 1, 2], [3, 1, 0]])


def test_groups_do_without_codes_that_lose_leaders() -> None:
    rng = np.random.default_rng(7)
    near, far = rng.normal(size=(3000, 8)) * 1e-4, rng.normal(size=(300, 8))
    vectors = rng.permutation(np.concatenate([near, far])).astype(np.float32)
    leaders, others = vectors[::3], vectors[1::3]
    index = LeaderGroups(leaders, others, seed=1)
    assert index.codes is None
    truth = np.argsort(squared(others, leaders), axis=1)[:, 0]
    assert (index.nearest(others)[:, 0] == truth).mean() > 0.95
    plain = rng.normal(size=(2000, 8)).astype(np.float32)
    assert LeaderGroups(plain[:1000], plain[1000:], seed=1).codes is not None
