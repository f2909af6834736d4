"""Edges between the vectors that are nearest to one query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from indexmill.builders.distances import as_bits
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.vamana.bridges import SHARE, add_bridges
from indexmill.builders.vamana.build import build_vamana
from indexmill.builders.vamana.graph import Graph, VamanaParameters
from indexmill.builders.vamana.navigation import with_asked
from indexmill.reader.threads import small_blocks

PARAMETERS = VamanaParameters(max_degree=12, build_list_size=24, alpha=1.2)
K = 6


@pytest.fixture(scope="module")
def rows() -> Any:
    return np.random.default_rng(3).standard_normal((600, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def nearest(rows: Any) -> Any:
    """Neighbours of far queries, which are not near to each other."""
    queries = 9 * np.random.default_rng(4).standard_normal((150, 8)).astype(np.float32)
    return exact_neighbours(rows, queries, K)[0]


@pytest.fixture(scope="module")
def graph(rows: Any) -> Graph:
    return build_vamana(rows, 0, PARAMETERS, seed=1)


def bridged(rows: Any, graph: Graph, nearest: Any, threads: int = 1) -> tuple[Any, Any, int]:
    neighbours, degrees = graph.neighbours.copy(), graph.degrees.copy()
    added = add_bridges(rows, neighbours, degrees, nearest, PARAMETERS.rule, threads)
    return neighbours, degrees, added


def lists_of(neighbours: Any, degrees: Any) -> list[list[int]]:
    return [row[:degree].tolist() for row, degree in zip(neighbours, degrees, strict=True)]


def test_lists_of_vectors_near_to_no_query_stay(rows: Any, graph: Graph, nearest: Any) -> None:
    neighbours, degrees, _ = bridged(rows, graph, nearest)
    others = np.setdiff1d(np.arange(len(rows)), nearest)
    assert len(others)
    np.testing.assert_array_equal(neighbours[others], graph.neighbours[others])
    np.testing.assert_array_equal(degrees[others], graph.degrees[others])


def test_most_new_neighbours_share_a_query_and_keep_their_share(
    rows: Any, graph: Graph, nearest: Any
) -> None:
    neighbours, degrees, added = bridged(rows, graph, nearest)
    together = {(int(a), int(b)) for query in nearest for a in query for b in query if a != b}
    before, after = lists_of(graph.neighbours, graph.degrees), lists_of(neighbours, degrees)
    fresh = [(v, u) for v in range(len(rows)) for u in set(after[v]) - set(before[v])]
    assert added == len(fresh) > 0
    assert set(fresh) <= together
    for old, new in zip(before, after, strict=True):
        assert len(set(old) - set(new)) <= SHARE * PARAMETERS.max_degree
        assert len(new) <= PARAMETERS.max_degree


def test_lists_are_in_order_without_repeats_and_without_their_vertex(
    rows: Any, graph: Graph, nearest: Any
) -> None:
    neighbours, degrees, _ = bridged(rows, graph, nearest)
    for v, members in enumerate(lists_of(neighbours, degrees)):
        assert len(set(members)) == len(members)
        assert v not in members
        distances = ((rows[members] - rows[v]) ** 2).sum(axis=1)
        assert (np.diff(distances) >= -1e-4).all()
        assert (neighbours[v, degrees[v] :] == 0).all()


def test_threads_and_blocks_do_not_change_the_lists(rows: Any, graph: Graph, nearest: Any) -> None:
    one = bridged(rows, graph, nearest)
    with small_blocks(7):
        many = bridged(rows, graph, nearest, threads=3)
    assert one[2] == many[2]
    np.testing.assert_array_equal(one[0], many[0])


def test_a_vertex_of_many_queries_takes_those_for_which_it_ranks_highest(rows: Any, graph: Graph) -> None:
    first = np.column_stack([np.zeros(128), np.arange(1, 129)])  # vertex 0 is the nearest
    last = np.column_stack([np.arange(300, 500), np.zeros(200)])  # and here the second
    neighbours, degrees, _ = bridged(rows, graph, np.concatenate([last, first]).astype(np.uint32))
    fresh = set(lists_of(neighbours, degrees)[0]) - set(lists_of(graph.neighbours, graph.degrees)[0])
    assert fresh
    assert max(fresh) <= 128


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_types_that_builders_take(rows: Any, nearest: Any, dtype: str) -> None:
    typed = np.clip(rows * 30 + 128, 0, 255).astype(dtype)
    graph = build_vamana(typed, 0, PARAMETERS, seed=1)
    assert bridged(typed, graph, nearest)[2] > 0
    assert as_bits(typed).shape == typed.shape


def test_half_of_the_navigation_graph_is_near_to_queries() -> None:
    sample, nearest = np.arange(0, 1000, 10, dtype=np.uint32), np.arange(500, 800, dtype=np.uint32)
    mixed = with_asked(sample, nearest, seed=1)
    assert len(np.unique(mixed)) == len(sample)
    assert (np.diff(mixed.astype(np.int64)) > 0).all()
    assert np.isin(mixed, nearest).sum() >= 50
    assert np.isin(mixed, sample).sum() >= 50


def test_few_nearest_vectors_leave_their_places_to_others() -> None:
    sample = np.arange(0, 1000, 10, dtype=np.uint32)
    mixed = with_asked(sample, np.full(400, 555, np.uint32), seed=1)
    assert len(mixed) == len(sample)
    assert 555 in mixed
    assert set(mixed.tolist()) <= {*sample.tolist(), 555}
