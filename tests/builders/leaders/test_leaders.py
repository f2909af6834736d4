"""Indexes over leaders: claims about what they find, beside brute force."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from indexmill.builders.leaders.assignment_error import AssignmentError, assignment_error
from indexmill.builders.leaders.base import ExactLeaders, LeaderIndex, draw_leaders, n_leaders
from indexmill.builders.leaders.graph import LeaderGraph
from indexmill.builders.leaders.groups import LeaderGroups
from indexmill.builders.leaders.tree import LeaderTree, sample_levels
from indexmill.builders.nearest.products import nearest_points
from indexmill.formats.errors import ConfigError
from indexmill.reader.threads import small_blocks

Maker = Callable[[Any, Any], LeaderIndex]
INDEXES: dict[str, Maker] = {
    "exact": lambda leaders, sample: ExactLeaders(leaders),
    "tree": lambda leaders, sample: LeaderTree(leaders, depth=3, beam=8, seed=1),
    "graph": lambda leaders, sample: LeaderGraph(leaders, seed=1),
    "groups": lambda leaders, sample: LeaderGroups(leaders, sample, seed=1),
}


@pytest.fixture(params=INDEXES)
def make(request: pytest.FixtureRequest) -> Maker:
    return INDEXES[request.param]


def points(n: int, dim: int, dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "float32":
        return rng.normal(size=(n, dim)).astype(np.float32)
    low = -128 if dtype == "int8" else 0
    return rng.integers(low, low + 256, (n, dim)).astype(dtype)


def by_sorting(vectors: np.ndarray, leaders: np.ndarray, fanout: int) -> np.ndarray:
    """The slow and obvious way: all squared distances, sorted by (distance, id)."""
    differences = vectors[:, None, :].astype(np.float64) - leaders[None].astype(np.float64)
    return np.argsort((differences**2).sum(axis=2), axis=1, kind="stable")[:, :fanout]


EXHAUSTIVE: dict[str, Maker] = {
    "exact": INDEXES["exact"],
    "tree of one level": lambda leaders, sample: LeaderTree(leaders, depth=1, seed=1),
    "tree with every branch": lambda leaders, sample: LeaderTree(leaders, depth=3, beam=len(leaders), seed=1),
    "graph with a full list": lambda leaders, sample: LeaderGraph(leaders, list_size=len(leaders), seed=1),
}


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float32"])
@pytest.mark.parametrize("fanout", [1, 3, 12])
@pytest.mark.parametrize("name", EXHAUSTIVE)
def test_an_index_that_looks_everywhere_is_brute_force(name: str, fanout: int, dtype: str) -> None:
    leaders, vectors = points(150, 6, dtype, 1), points(200, 6, dtype, 2)
    found = EXHAUSTIVE[name](leaders, vectors).nearest(vectors, fanout)
    assert found.dtype == np.uint32
    np.testing.assert_array_equal(found, by_sorting(vectors, leaders, fanout))


@pytest.mark.parametrize("fanout", [2, 8, 9])
def test_brute_force_finds_several_with_ties_by_the_smaller_index(fanout: int) -> None:
    leaders = np.random.default_rng(3).integers(0, 3, (60, 3)).astype(np.float32)  # many equal distances
    vectors = np.random.default_rng(4).integers(0, 3, (80, 3)).astype(np.uint8)
    np.testing.assert_array_equal(
        nearest_points(vectors, leaders, fanout), by_sorting(vectors, leaders, fanout)
    )


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name", ["graph", "groups"])
def test_nearly_all_vectors_find_their_nearest_leader(name: str, dtype: str) -> None:
    leaders, vectors = points(2000, 12, dtype, 5), points(6000, 12, dtype, 6)
    index = INDEXES[name](leaders, vectors[3000:])
    error = assignment_error(index, vectors[:3000])
    assert error.agreement >= 0.98
    assert error.excess_distance <= 0.005


def test_a_wider_beam_finds_more() -> None:
    leaders, vectors = points(2000, 10, "float32", 7), points(2000, 10, "float32", 8)
    found = [assignment_error(LeaderTree(leaders, beam=b, seed=1), vectors).agreement for b in (1, 4, 64)]
    assert found[0] < found[1] < found[2]
    assert found[2] > 0.97


def test_slack_brings_the_wanted_share_within_reach() -> None:
    leaders, vectors = points(2000, 12, "float32", 9), points(4000, 12, "float32", 10)
    some, every = (LeaderGroups(leaders, vectors, fanout=2, agreement=a, seed=1) for a in (0.8, 1.0))
    assert 0.75 <= assignment_error(some, vectors, 2).recall < 0.99
    assert assignment_error(every, vectors, 2).recall == 1


def test_levels_of_a_tree_shrink_evenly() -> None:
    assert [len(level) for level in sample_levels(1000, depth=3, seed=1)] == [10, 100, 1000]
    assert len(sample_levels(3, depth=5, seed=1)[-1]) == 3


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_result_is_the_same_for_any_number_of_threads(make: Maker, dtype: str) -> None:
    leaders, vectors = points(500, 8, dtype, 12), points(1500, 8, dtype, 13)
    with small_blocks(128):
        index = make(leaders, vectors)
        one = index.nearest(vectors, 2, 1)
        np.testing.assert_array_equal(one, index.nearest(vectors, 2, 3))
        np.testing.assert_array_equal(one, make(leaders, vectors).nearest(vectors, 2, 2))


def test_rows_name_different_leaders(make: Maker) -> None:
    leaders, vectors = points(300, 8, "uint8", 14), points(400, 8, "uint8", 15)
    found = np.sort(make(leaders, vectors).nearest(vectors, 20), axis=1)
    assert (found[:, 1:] > found[:, :-1]).all()
    assert found.max() < 300


def test_identical_leaders_are_all_found_smallest_first(make: Maker) -> None:
    leaders = np.full((40, 4), 9, np.uint8)
    found = make(leaders, leaders[:5]).nearest(points(30, 4, "uint8", 16), 40)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.tile(np.arange(40), (30, 1)))
    np.testing.assert_array_equal(found[:, 0], np.zeros(30))


def test_a_far_leader_without_vectors_harms_nothing(make: Maker) -> None:
    leaders, vectors = points(200, 6, "float32", 17), points(500, 6, "float32", 18)
    leaders[7] = 1e4
    found = make(leaders, vectors).nearest(vectors)
    assert (found != 7).all()
    assert (found == by_sorting(vectors, leaders, 1)).mean() > 0.9


def test_one_giant_cluster_is_assigned(make: Maker) -> None:
    vectors = np.concatenate([points(3000, 6, "float32", 19) * 1e-3, points(50, 6, "float32", 20) * 100])
    leaders, others = vectors[::10], vectors[5::10]
    error = assignment_error(make(leaders, others), others)
    assert error.agreement > 0.8


def test_one_leader_and_no_vectors_are_served(make: Maker) -> None:
    leaders = points(1, 4, "uint8", 21)
    index = make(leaders, leaders)
    np.testing.assert_array_equal(index.nearest(points(9, 4, "uint8", 22)), np.zeros((9, 1)))
    assert index.nearest(np.empty((0, 4), np.uint8)).shape == (0, 1)


@pytest.mark.parametrize("fanout", [0, 21])
def test_a_fanout_beyond_the_leaders_is_refused(make: Maker, fanout: int) -> None:
    leaders = points(20, 4, "uint8", 23)
    with pytest.raises(ConfigError, match="fanout: expected 1 to 20"):
        make(leaders, leaders).nearest(leaders, fanout)


def test_vectors_unlike_the_leaders_are_refused(make: Maker) -> None:
    leaders = points(20, 4, "uint8", 24)
    index = make(leaders, leaders)
    for vectors in (points(5, 3, "uint8", 25), points(5, 4, "float32", 25)):
        with pytest.raises(ConfigError, match="expected uint8 rows of 4 components"):
            index.nearest(vectors)


def test_leaders_are_distinct_rows_in_order() -> None:
    drawn = draw_leaders(1000, 100, 1)
    assert (np.diff(drawn) > 0).all()
    assert drawn[0] >= 0
    assert drawn[-1] < 1000
    np.testing.assert_array_equal(drawn, draw_leaders(1000, 100, 1))
    assert (drawn != draw_leaders(1000, 100, 2)).any()
    np.testing.assert_array_equal(draw_leaders(5, 5, 1), np.arange(5))


@pytest.mark.parametrize("n", [0, 11])
def test_more_leaders_than_vectors_are_refused(n: int) -> None:
    with pytest.raises(ConfigError, match="leaders: expected 1 to 10"):
        draw_leaders(10, n, 1)


def test_leaf_size_decides_the_number_of_leaders() -> None:
    assert n_leaders(1_000_000, 128, 128) == 977  # 1,024 vectors a leaf
    assert n_leaders(1000, 128, 128) == 1
    assert n_leaders(3, 4096, 1) == 3


def test_error_counts_what_is_not_found() -> None:
    class Wrong(ExactLeaders):
        def nearest(self, vectors: Any, fanout: int = 1, threads: int = 1) -> Any:
            found = super().nearest(vectors, fanout, threads)
            found[::2, 0] = 3  # far away
            return found

    leaders = np.array([[0, 0], [0, 1], [0, 3], [0, 100]], np.float32)
    vectors = np.tile(np.array([[0, -1]], np.float32), (10, 1))
    error = assignment_error(Wrong(leaders), vectors, 2)
    assert error == AssignmentError(10, 4, 2, 0.5, 0.75, pytest.approx((1 + 101) / 2 - 1))
    assert json.loads(json.dumps(dataclasses.asdict(error)))["agreement"] == 0.5


def test_ties_count_as_right() -> None:
    leaders = np.array([[0, 1], [0, -1]], np.float32)

    class Other(ExactLeaders):
        def nearest(self, vectors: Any, fanout: int = 1, threads: int = 1) -> Any:
            return np.ones((len(vectors), 1), np.uint32)

    assert assignment_error(Other(leaders), np.zeros((4, 2), np.float32)).agreement == 1


def test_an_empty_sample_is_refused() -> None:
    leaders = points(20, 4, "uint8", 26)
    with pytest.raises(ConfigError, match="sample: no vectors"):
        assignment_error(ExactLeaders(leaders), leaders[:0])
    with pytest.raises(ConfigError, match="sample: no vectors"):
        LeaderGroups(leaders, leaders[:0], seed=1)
