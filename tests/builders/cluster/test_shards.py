"""Shards: every vector in one or two, no shard too large, and only vectors near a border shared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.builders.cluster.shards import ShardPlan, plan_shards
from indexmill.formats.errors import BudgetError


def clustered(n: int, dim: int = 6, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(9, dim)) * 3
    return (centres[rng.integers(0, 9, n)] + rng.normal(size=(n, dim))).astype(np.float32)


def sizes_of(plan: ShardPlan, vectors: np.ndarray) -> np.ndarray:
    return np.bincount(plan.assign(vectors, 0)[0], minlength=plan.n_shards)


@settings(deadline=None, max_examples=25)
@given(st.integers(400, 3000), st.floats(0, 1), st.integers(2, 6), st.integers(0, 9))
def test_every_vector_is_in_one_or_two_shards_of_bounded_size(
    n: int, overlap: float, pieces: int, seed: int
) -> None:
    vectors = clustered(n, seed=seed)
    limit = max(64, int(n * (1 + overlap)) // pieces)
    plan = plan_shards(vectors, n, limit, overlap, seed)
    shards, rows = plan.assign(vectors, 0)
    assert len(set(zip(shards.tolist(), rows.tolist(), strict=True))) == len(rows)
    memberships = np.bincount(rows, minlength=n)
    assert set(memberships) <= {1, 2}
    assert sizes_of(plan, vectors).max() <= limit


def test_only_vectors_nearest_to_a_border_are_shared() -> None:
    line = np.linspace(0, 1, 1001, dtype=np.float32)[:, None]
    plan = plan_shards(line, 1001, 700, 0.2, 1)
    assert plan.n_shards == 2
    shards, rows = plan.assign(line, 0)
    shared = np.flatnonzero(np.bincount(rows) == 2)
    assert 180 <= len(shared) <= 201
    assert (np.diff(shared) == 1).all()  # one strip
    assert abs(line[shared].mean() - 0.5) < 0.05
    assert sorted(np.bincount(shards).tolist()) == pytest.approx([600, 600], abs=30)


def test_memberships_do_not_depend_on_blocks_or_threads() -> None:
    vectors = clustered(20_000)
    plan = plan_shards(vectors[::4], 20_000, 6000, 0.3, 1, threads=1)
    again = plan_shards(vectors[::4], 20_000, 6000, 0.3, 1, threads=3)
    np.testing.assert_array_equal(plan.weights, again.weights)
    whole = set(zip(*(part.tolist() for part in plan.assign(vectors, 0, threads=3)), strict=True))
    parts = set()
    for first in range(0, 20_000, 8192):
        shards, rows = plan.assign(vectors[first : first + 8192], first)
        parts |= set(zip(shards.tolist(), (rows + first).tolist(), strict=True))
    assert parts == whole


def test_equal_vectors_are_cut_at_random_each_into_two_parts() -> None:
    vectors = np.zeros((3000, 4), np.float32)
    plan = plan_shards(vectors, 3000, 900, 0.25, 1)
    shards, rows = plan.assign(vectors, 0)
    assert (np.bincount(rows) == 2).all()
    assert np.bincount(shards).max() <= 900
    pairs = {frozenset(shards[rows == row].tolist()) for row in range(3000)}
    assert len(pairs) == plan.n_shards * (plan.n_shards - 1) // 2  # every two parts share vectors


def test_more_shards_than_the_sample_can_tell_are_refused() -> None:
    with pytest.raises(BudgetError, match=r"shards, too many for a sample of 100; raise --memory"):
        plan_shards(clustered(100), 1_000_000, 1000, 0.25, 1)
