"""Edges between the vectors of one label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from indexmill.builders.vamana.build import build_vamana
from indexmill.builders.vamana.graph import Graph, VamanaParameters
from indexmill.builders.vamana.labels import LEAST_VECTORS, add_label_edges, label_bytes, nearest_to_mean
from indexmill.reader.threads import small_blocks

PARAMETERS = VamanaParameters(max_degree=16, build_list_size=24, alpha=1.2)
PLACES = 6
#: Vectors from which on a label gets edges here, fewer than usual.
LEAST = 20


@pytest.fixture(scope="module")
def rows() -> Any:
    return np.random.default_rng(3).standard_normal((900, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def labels() -> Any:
    """Labels of 1% (no edges), 9%, 30% and 50% of the vectors, whatever they are, and vectors without a label."""
    drawn = np.random.default_rng(4).choice(
        np.array([-1, 3, 4, 7, 2**31]), 900, p=[0.1, 0.01, 0.09, 0.3, 0.5]
    )
    assert 2 <= (drawn == 3).sum() < LEAST < (drawn == 4).sum()
    return drawn


@pytest.fixture(scope="module")
def graph(rows: Any) -> Graph:
    return build_vamana(rows, 0, PARAMETERS, seed=1)


def with_edges(
    rows: Any, graph: Graph, labels: Any, threads: int = 1, places: int = PLACES, least: int = LEAST
) -> tuple[Any, Any, int]:
    neighbours, degrees = graph.neighbours.copy(), graph.degrees.copy()
    added = add_label_edges(
        rows, neighbours, degrees, labels, places, PARAMETERS, seed=1, threads=threads, least=least
    )
    return neighbours, degrees, added


def lists_of(neighbours: Any, degrees: Any) -> list[list[int]]:
    return [row[:degree].tolist() for row, degree in zip(neighbours, degrees, strict=True)]


def test_lists_of_vectors_of_rare_labels_and_of_none_stay(rows: Any, graph: Graph, labels: Any) -> None:
    neighbours, degrees, _ = with_edges(rows, graph, labels)
    others = np.flatnonzero((labels == -1) | (labels == 3))
    np.testing.assert_array_equal(neighbours[others], graph.neighbours[others])
    np.testing.assert_array_equal(degrees[others], graph.degrees[others])
    assert with_edges(rows, graph, labels, least=LEAST_VECTORS)[2] > 0
    assert with_edges(rows, graph, np.arange(900))[2] == 0
    assert with_edges(rows, graph, np.full(900, -1))[2] == 0


def test_new_neighbours_have_the_label_and_take_their_places_alone(
    rows: Any, graph: Graph, labels: Any
) -> None:
    neighbours, degrees, added = with_edges(rows, graph, labels)
    before, after = lists_of(graph.neighbours, graph.degrees), lists_of(neighbours, degrees)
    fresh = [(v, u) for v in range(len(rows)) for u in set(after[v]) - set(before[v])]
    assert added == len(fresh) > len(rows)
    assert all(labels[v] == labels[u] and v != u for v, u in fresh)
    for old, new in zip(before, after, strict=True):
        assert len(set(old) - set(new)) <= PLACES
        assert len(set(new)) == len(new) <= PARAMETERS.max_degree


@pytest.mark.parametrize("label", [4, 7, 2**31])
def test_all_vectors_of_a_label_are_reached_by_edges_within_it(
    rows: Any, graph: Graph, labels: Any, label: int
) -> None:
    mine = np.flatnonzero(labels == label)
    entry = int(mine[nearest_to_mean(rows[mine])])
    reached = [
        within(entry, lists_of(neighbours, degrees), set(mine.tolist()))
        for neighbours, degrees in (
            (graph.neighbours, graph.degrees),
            with_edges(rows, graph, labels)[:2],
        )
    ]
    assert reached[1] == set(mine.tolist())
    if label == 4:
        assert len(reached[0]) < len(mine) / 2  # which edges of all vectors do not do


def within(entry: int, lists: list[list[int]], members: set[int]) -> set[int]:
    found, todo = {entry}, [entry]
    while todo:
        fresh = members.intersection(lists[todo.pop()]) - found
        found |= fresh
        todo += fresh
    return found


def test_lists_stay_in_ascending_order_of_distance_and_id(rows: Any, graph: Graph, labels: Any) -> None:
    neighbours, degrees, _ = with_edges(rows, graph, labels)
    for v, list_ in enumerate(lists_of(neighbours, degrees)):
        distances = ((rows[list_] - rows[v]) ** 2).sum(axis=1)
        assert (np.diff(distances) >= -1e-5).all()
    assert not neighbours[np.arange(neighbours.shape[1]) >= degrees[:, None]].any()


@pytest.mark.parametrize("threads", [2, 5])
def test_any_number_of_threads_makes_the_same_edges(
    rows: Any, graph: Graph, labels: Any, threads: int
) -> None:
    want = with_edges(rows, graph, labels)
    with small_blocks(7):
        found = with_edges(rows, graph, labels, threads)
    for a, b in zip(want, found, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int8"])
def test_vectors_of_every_type_get_edges(rows: Any, labels: Any, dtype: str) -> None:
    wide = rows if dtype == "float16" else 20 * rows + (100 if dtype == "uint8" else 0)
    typed = np.clip(wide, -100, 255 if dtype == "uint8" else 100).astype(dtype)
    graph = build_vamana(typed, 0, PARAMETERS, seed=1)
    assert with_edges(typed, graph, labels)[2] > len(rows)


def test_one_label_of_all_vectors_and_vectors_that_are_equal_are_no_matter(rows: Any, graph: Graph) -> None:
    neighbours, degrees, _ = with_edges(rows, graph, np.zeros(len(rows), np.int64))
    assert (degrees <= PARAMETERS.max_degree).all()
    equal = np.zeros((60, 8), np.float32)
    neighbours, degrees, _ = with_edges(
        equal, build_vamana(equal, 0, PARAMETERS, seed=1), np.zeros(60, np.int64)
    )
    assert all(len(set(list_)) == len(list_) for list_ in lists_of(neighbours, degrees))


def test_the_memory_grows_with_the_most_frequent_label() -> None:
    assert label_bytes(1000, 900, 128, 8) - label_bytes(1000, 100, 128, 8) >= 800 * (128 + 4 * 8)
