"""Graphs built from byte codes, and from the vectors where codes do not tell near ones apart."""

from __future__ import annotations

import numpy as np
import pytest

from indexmill.builders.partition.build import build_partitioned
from indexmill.builders.partition.coded import MOST_MISSED, build_coded, missed_by_codes
from indexmill.builders.quantize.scalar import comparable_codes
from indexmill.builders.vamana.graph import Graph, VamanaParameters
from indexmill.reader.threads import small_blocks

SMALL = VamanaParameters(max_degree=8, build_list_size=24, alpha=1.2)
N = 3000


def points(dim: int = 10) -> np.ndarray:
    return np.random.default_rng(4).normal(size=(N, dim)).astype(np.float32)


def with_a_wide_component() -> np.ndarray:
    vectors = points()
    vectors[7, 3] = 1e6
    return vectors


def in_tight_groups() -> np.ndarray:
    """Groups whose members differ by less than a step of the codes."""
    places = np.repeat(np.random.default_rng(5).normal(size=(N // 50, 10)), 50, axis=0)
    return (places + 1e-4 * points()).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_graph_is_that_of_the_codes_where_these_tell_near_vectors_apart(dtype: str) -> None:
    vectors = points().astype(dtype)
    made = build_coded(vectors, 3, SMALL, seed=1)
    expected = build_partitioned(comparable_codes(vectors), 3, SMALL, seed=1)
    np.testing.assert_array_equal(made.neighbours, expected.neighbours)
    np.testing.assert_array_equal(made.degrees, expected.degrees)


@pytest.mark.parametrize("make", [with_a_wide_component, in_tight_groups])
def test_the_graph_is_that_of_the_vectors_where_codes_do_not(make) -> None:  # type: ignore[no-untyped-def]
    vectors, told = make(), []
    vectors.flags.writeable = False  # as those of a mapped file
    made = build_coded(vectors, 3, SMALL, seed=1, advance=told.append)
    expected = build_partitioned(np.array(vectors), 3, SMALL, seed=1)
    np.testing.assert_array_equal(made.neighbours, expected.neighbours)
    assert sum(told) == N


def test_codes_and_their_judgement_are_the_same_for_any_number_of_threads() -> None:
    vectors = with_a_wide_component()
    with small_blocks(50):
        one, two = (comparable_codes(vectors, threads) for threads in (1, 3))
        np.testing.assert_array_equal(one, two)
        graph = build_partitioned(one, 3, SMALL, seed=1)
        missed = {missed_by_codes(vectors, one, graph, threads) for threads in (1, 3)}
    assert len(missed) == 1
    assert missed.pop() > MOST_MISSED


def test_codes_that_lose_nothing_miss_nothing() -> None:
    vectors = np.random.default_rng(1).integers(0, 256, (500, 12)).astype(np.float32)  # with equal distances
    vectors[0], vectors[1] = 0, 255
    codes = comparable_codes(vectors)
    assert missed_by_codes(vectors, codes, build_partitioned(codes, 0, SMALL, seed=1)) == 0


def test_a_graph_without_edges_misses_nothing() -> None:
    graph = Graph(np.zeros((1, 8), np.uint32), np.zeros(1, np.int32), 0)
    assert missed_by_codes(points()[:1], np.zeros((1, 10), np.uint8), graph) == 0
