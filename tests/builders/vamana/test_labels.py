"""Edges between the vectors of one label."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.partition.build import build_partitioned
from indexmill.builders.vamana.bridges import add_bridges
from indexmill.builders.vamana.build import build_vamana
from indexmill.builders.vamana.graph import Graph, VamanaParameters
from indexmill.builders.vamana.labels import LEAST_VECTORS, LabelEdges, add_label_edges, label_bytes
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
    rows: Any,
    graph: Graph,
    labels: Any,
    threads: int = 1,
    places: int = PLACES,
    least: int = LEAST,
    nearest: Any = None,
) -> tuple[Any, Any, LabelEdges]:
    neighbours, degrees = graph.neighbours.copy(), graph.degrees.copy()
    edges = add_label_edges(
        rows, neighbours, degrees, graph.entry, labels, lambda n: places, PARAMETERS, seed=1, nearest=nearest,
        threads=threads, least=least,
    )  # fmt: skip
    return neighbours, degrees, edges


def lists(graph: Graph) -> tuple[Any, Any]:
    return graph.neighbours, graph.degrees


def lists_of(neighbours: Any, degrees: Any) -> list[list[int]]:
    return [row[:degree].tolist() for row, degree in zip(neighbours, degrees, strict=True)]


def test_lists_of_vectors_of_rare_labels_and_of_none_stay(rows: Any, graph: Graph, labels: Any) -> None:
    neighbours, _, edges = with_edges(rows, graph, labels)
    others = np.flatnonzero((labels == -1) | (labels == 3))
    changed = (neighbours[others] != graph.neighbours[others]).any(axis=1)
    assert changed.sum() <= edges.linked < 10
    assert with_edges(rows, graph, labels, least=LEAST_VECTORS)[2].within > 0
    assert with_edges(rows, graph, np.arange(900))[2] == (0, 0)
    assert with_edges(rows, graph, np.full(900, -1))[2] == (0, 0)


def test_new_neighbours_have_the_label_and_take_their_places_alone(
    rows: Any, graph: Graph, labels: Any
) -> None:
    neighbours, degrees, edges = with_edges(rows, graph, labels)
    before, after = lists_of(graph.neighbours, graph.degrees), lists_of(neighbours, degrees)
    fresh = [(v, u) for v in range(len(rows)) for u in set(after[v]) - set(before[v])]
    assert edges.within > len(rows)
    assert abs(len(fresh) - edges.within) <= edges.linked
    assert sum(labels[v] != labels[u] for v, u in fresh) <= edges.linked
    assert all(v != u for v, u in fresh)
    for old, new in zip(before, after, strict=True):
        assert len(set(old) - set(new)) <= PLACES + edges.linked
        assert len(set(new)) == len(new) <= PARAMETERS.max_degree


@pytest.mark.parametrize("label", [4, 7, 2**31])
def test_each_vector_of_a_label_leads_to_each_other_by_edges_within_it(
    rows: Any, graph: Graph, labels: Any, label: int
) -> None:
    mine = set(np.flatnonzero(labels == label).tolist())
    neighbours, degrees, _ = with_edges(rows, graph, labels)
    after = lists_of(neighbours, degrees)
    assert all(within(start, after, mine) == mine for start in sorted(mine)[:: len(mine) // 20])
    assert within(min(mine), reversed_lists(after), mine) == mine
    if label == 4:  # which edges of all vectors do not do
        before = lists_of(graph.neighbours, graph.degrees)
        assert len(within(min(mine), before, mine)) < len(mine) / 2


def test_all_vectors_stay_within_reach_of_the_entry(rows: Any, graph: Graph, labels: Any) -> None:
    neighbours, degrees, _ = with_edges(rows, graph, labels)
    everything = set(range(len(rows)))
    assert within(graph.entry, lists_of(neighbours, degrees), everything) == everything


def reversed_lists(lists: list[list[int]]) -> list[list[int]]:
    into: list[list[int]] = [[] for _ in lists]
    for v, row in enumerate(lists):
        for u in row:
            into[u].append(v)
    return into


@pytest.mark.parametrize("kind", ["two distant groups", "one vector", "two vectors"])
def test_labels_of_distant_groups_and_of_equal_vectors_are_connected_and_so_are_all(kind: str) -> None:
    drawn = np.random.default_rng(8).standard_normal((600, 8)).astype(np.float32)
    labels = np.arange(600) % 5
    if kind == "two distant groups":
        drawn[::2] += 1000
        labels[:] = np.arange(600) // 2 % 5  # each has vectors of both
    else:
        drawn[labels == 2] = 0
        if kind == "two vectors":
            drawn[2::10] = 7
    graph = build_partitioned(drawn, 0, PARAMETERS, seed=1)
    neighbours, degrees, _ = with_edges(drawn, graph, labels)
    after, everything = lists_of(neighbours, degrees), set(range(600))
    assert within(graph.entry, after, everything) == everything
    for label in range(5):
        mine = set(np.flatnonzero(labels == label).tolist())
        first = min(mine)
        assert within(first, after, mine) == within(first, reversed_lists(after), mine) == mine


def test_bridges_between_vectors_of_a_query_keep_their_places(rows: Any, graph: Graph, labels: Any) -> None:
    queries = 9 * np.random.default_rng(4).standard_normal((150, 8)).astype(np.float32)
    nearest = exact_neighbours(rows, queries, 6)[0]
    neighbours, degrees = graph.neighbours.copy(), graph.degrees.copy()
    add_bridges(rows, neighbours, degrees, nearest, PARAMETERS.rule)
    before = lists_of(graph.neighbours, graph.degrees)
    bridges = [
        (v, u) for v, row in enumerate(lists_of(neighbours, degrees)) for u in set(row) - set(before[v])
    ]
    bridged = Graph(neighbours, degrees, graph.entry)
    lost = []
    for given in (nearest, None):
        new_neighbours, new_degrees, edges = with_edges(rows, bridged, labels, nearest=given)
        after = lists_of(new_neighbours, new_degrees)
        lost.append(sum(u not in after[v] for v, u in bridges) - edges.linked)
        assert edges.within > len(rows)
    assert lost[0] <= 0 < lost[1]


def test_lists_lead_to_the_distant_clusters_that_they_led_to() -> None:
    rng = np.random.default_rng(5)
    clusters, labels = np.arange(1000) % 5, rng.integers(0, 3, 1000)
    vectors = rng.standard_normal((1000, 8)) + 300 * np.eye(8)[clusters]
    vectors = vectors.astype(np.float32)
    graph = build_partitioned(vectors, 0, PARAMETERS, seed=1)
    before = lists_of(graph.neighbours, graph.degrees)
    neighbours, degrees, edges = with_edges(vectors, graph, labels)
    after = lists_of(neighbours, degrees)
    leading = [
        [set(clusters[row].tolist()) - {clusters[v]} for v, row in enumerate(lists)]
        for lists in (before, after)
    ]
    there = sum(map(len, leading[0]))
    assert there > 400
    lost = sum(len(old - new) for old, new in zip(*leading, strict=True))
    assert lost <= there // 100 + edges.linked  # of prune alone, one in ten


def test_labels_get_as_many_places_as_their_number_of_vectors_is_given(
    rows: Any, graph: Graph, labels: Any
) -> None:
    sizes, before = {label: int((labels == label).sum()) for label in (4, 7)}, lists_of(*lists(graph))

    def fresh(places: dict[int, int], label: int) -> int:
        neighbours, degrees = (each.copy() for each in lists(graph))
        chosen = np.where(np.isin(labels, list(sizes)), labels, -1)
        given = {sizes[one]: most for one, most in places.items()}.__getitem__
        add_label_edges(
            rows, neighbours, degrees, graph.entry, chosen, given, PARAMETERS, seed=1, least=LEAST
        )
        after = lists_of(neighbours, degrees)
        return max(len(set(after[v]) - set(before[v])) for v in np.flatnonzero(labels == label))

    for label in sizes:
        few, many = ({**dict.fromkeys(sizes, 5), label: most} for most in (2, 9))
        assert fresh(few, label) <= 2 + 1 < fresh(many, label)  # one more may connect the graph


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
    assert with_edges(typed, graph, labels)[2].within > len(rows)


def test_one_label_of_all_vectors_and_vectors_that_are_equal_are_no_matter(rows: Any, graph: Graph) -> None:
    neighbours, degrees, _ = with_edges(rows, graph, np.zeros(len(rows), np.int64))
    assert (degrees <= PARAMETERS.max_degree).all()
    equal = np.zeros((60, 8), np.float32)
    neighbours, degrees, _ = with_edges(
        equal, build_vamana(equal, 0, PARAMETERS, seed=1), np.zeros(60, np.int64)
    )
    assert all(len(set(list_)) == len(list_) for list_ in lists_of(neighbours, degrees))


def test_memory_is_at_most_what_is_counted() -> None:
    n, dim = 6000, 64
    rows = np.random.default_rng(5).standard_normal((n, dim)).astype(np.float32)
    graph, labels = build_vamana(rows, 0, PARAMETERS, seed=1), np.arange(n) % 2
    with_edges(rows, graph, labels)  # compiles
    neighbours, degrees = graph.neighbours.copy(), graph.degrees.copy()
    tracemalloc.start()
    add_label_edges(rows, neighbours, degrees, graph.entry, labels, lambda n: PLACES, PARAMETERS, seed=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = label_bytes(n, n // 2, 4 * dim, PLACES)
    assert 0.5 * counted < peak < counted + (2 << 20)
