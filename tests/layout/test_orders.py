"""Every order is a bijection, the same for any number of threads, and the order of its oracle."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.oracles.layout import orders as oracle
from tests.support.indexes.layout import as_lists, random_graph

from indexmill.formats.errors import ConfigError
from indexmill.layout.breadth_first import BreadthFirstOrder
from indexmill.layout.gorder import Gorder
from indexmill.layout.gorder_windowed import GorderWindowed
from indexmill.layout.graph_bisection import GraphBisectionOrder
from indexmill.layout.kmeans_pages import KmeansPagesOrder
from indexmill.layout.margo import MargoOrder
from indexmill.layout.metrics import layout_metrics
from indexmill.layout.order import Adjacency, Given, Work, in_memory
from indexmill.layout.parts import Packed, pack_in_parts
from indexmill.layout.portfolio import NEEDS_POINTS, ORDERS, USES_POINTS
from indexmill.pipeline.kinds.graph.order import ORDER_BYTES
from indexmill.pipeline.kinds.graph.parameters import Order, Parameters
from indexmill.reader.threads import small_blocks


def with_large(order: type[Any], large: int) -> Any:
    """Return an order to which ranges of so many vertices are large."""
    return type(order.__name__, (order,), {"large": large})()


graphs = st.tuples(st.integers(1, 40), st.integers(1, 8), st.integers(0, 2**31))
#: Orders with small parts, so that a small graph has several, and large ranges.
SMALL = ORDERS | {
    "gorder-windowed": GorderWindowed(part_pages=2),
    "margo": MargoOrder(part_pages=2),
    "kmeans-pages": with_large(KmeansPagesOrder, 100),
    "graph-bisection": with_large(GraphBisectionOrder, 100),
}
PLANTED = sorted(set(ORDERS) - {"identity", "random"})


def some_points(n: int, seed: int, dim: int = 20) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, dim), np.uint8)


def near_graph(n: int, r: int, seed: int, dim: int = 6) -> tuple[Adjacency, np.ndarray]:
    """The r nearest neighbours of each of n random points, nearest first."""
    points = some_points(n, seed, dim)
    wide = points.astype(np.int64)
    distances = ((wide[:, None] - wide) ** 2).sum(axis=2)
    np.fill_diagonal(distances, 1 << 40)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :r].astype(np.uint32)
    return Adjacency(nearest, np.full(n, r, np.int32)), points


def pages_of(order: np.ndarray, b: int) -> list[frozenset[int]]:
    return [frozenset(order[at : at + b].tolist()) for at in range(0, len(order), b)]


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=15, deadline=None)
@given(graph=graphs, b=st.integers(1, 50))
def test_an_order_is_a_bijection_for_any_graph_and_page(
    name: str, graph: tuple[int, int, int], b: int
) -> None:
    adjacency = Adjacency(*random_graph(*graph))
    order = SMALL[name].fit(adjacency, some_points(graph[0], graph[2]), b, 1)
    assert order.dtype == np.uint32
    assert sorted(order.tolist()) == list(range(graph[0]))


@pytest.mark.parametrize("name", SMALL)
def test_an_order_takes_vertices_without_edges_and_float_vectors(name: str) -> None:
    empty = Adjacency(np.zeros((7, 1), np.uint32), np.zeros(7, np.int32))
    order = SMALL[name].fit(empty, np.zeros((7, 3), np.float32), 2, 1)
    assert sorted(order.tolist()) == list(range(7))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("n", [1, 3, 50, 200])
def test_an_order_takes_loops_and_repeated_neighbours(name: str, n: int) -> None:
    graph = Adjacency(np.random.default_rng(n).integers(0, n, (n, 9), np.uint32), np.full(n, 9, np.int32))
    order = SMALL[name].fit(graph, some_points(n, n), 4, 1)
    assert sorted(order.tolist()) == list(range(n))


@pytest.mark.parametrize("name", SMALL)
def test_threads_do_not_reach_the_order(name: str) -> None:
    graph, points = near_graph(400, 8, 5)
    alone = SMALL[name].fit(graph, points, 4, 1)
    np.testing.assert_array_equal(alone, SMALL[name].fit(graph, points, 4, 1, threads=3))


@pytest.mark.parametrize("name", PLANTED)
def test_an_order_out_of_work_is_a_bijection_and_ends_early(name: str) -> None:
    graph, points = near_graph(400, 8, 5)
    whole = Work()
    best = SMALL[name].fit(graph, points, 4, 1, work=whole)
    assert whole.spent > 0
    differs = False
    for limit in (0, whole.spent // 8, whole.spent // 2):
        work = Work(limit)
        order = SMALL[name].fit(graph, points, 4, 1, work=work)
        assert sorted(order.tolist()) == list(range(400))
        assert work.spent <= whole.spent
        differs |= bool((order != best).any())
    assert differs or name in ("star", "bnp", "bnf")  # never interrupted; no round of the last is better here


@pytest.mark.parametrize("name", PLANTED)
def test_an_order_beats_random_on_overlap(name: str) -> None:
    graph, points = near_graph(400, 8, 5)
    ratio = [
        layout_metrics(*graph, ORDERS[which].fit(graph, points, 5, 1), 5, 1.0).overlap_ratio
        for which in (name, "random")
    ]
    assert ratio[0] > 2 * ratio[1]


@pytest.mark.parametrize("name", PLANTED)
def test_an_order_of_edges_alone_needs_no_vectors(name: str) -> None:
    graph, _ = near_graph(60, 4, 2)
    if name in ("kmeans-pages", "margo", "agglomerative"):
        assert name in NEEDS_POINTS & USES_POINTS
        with pytest.raises(ConfigError, match=f"order {name}: .* none were given.* alone, such as star"):
            ORDERS[name].fit(graph, None, 4, 1)
    else:
        assert name not in NEEDS_POINTS
        assert sorted(ORDERS[name].fit(graph, None, 4, 1).tolist()) == list(range(60))


def test_a_build_takes_every_order_and_knows_its_memory() -> None:
    assert set(get_args(Order)) == set(ORDERS) == set(ORDER_BYTES)


def test_an_order_of_an_earlier_version_is_the_one_that_took_its_place() -> None:
    assert Parameters.model_validate({"order": "polish"}).order == "agglomerative"
    with pytest.raises(ValidationError, match="star"):
        Parameters.model_validate({"order": "nicest"})


def test_the_portfolio_says_which_orders_use_vectors() -> None:
    graph, points = near_graph(300, 6, 9)
    for name, order in SMALL.items():
        with_points = order.fit(graph, points, 4, 1)
        if name not in USES_POINTS:
            np.testing.assert_array_equal(with_points, order.fit(graph, None, 4, 1))


@settings(max_examples=40, deadline=None)
@given(graphs)
def test_breadth_first_is_the_walk_of_the_oracle(graph: tuple[int, int, int]) -> None:
    neighbours, degrees = random_graph(*graph)
    start = graph[2] % graph[0]
    order = BreadthFirstOrder(start).fit(Adjacency(neighbours, degrees), None, 4, 1)
    assert order.tolist() == oracle.breadth_first(as_lists(neighbours, degrees), start)


def test_breadth_first_starts_at_the_medoid_or_the_most_pointed_at() -> None:
    graph = Adjacency(np.array([[2], [2], [3], [2]], np.uint32), np.ones(4, np.int32))
    points = np.array([[0], [100], [20], [200]], np.uint8)
    assert BreadthFirstOrder().fit(graph, points, 2, 1)[0] == 1  # nearest to the mean, 80
    assert BreadthFirstOrder().fit(graph, None, 2, 1)[0] == 2


def test_breadth_first_refuses_a_start_that_is_no_vertex() -> None:
    graph = Adjacency(np.zeros((3, 1), np.uint32), np.zeros(3, np.int32))
    with pytest.raises(ConfigError, match="start: expected a vertex from 0 to 2, got 3"):
        BreadthFirstOrder(3).fit(graph, None, 2, 1)


@settings(max_examples=40, deadline=None)
@given(graphs, st.integers(1, 6))
def test_gorder_always_takes_a_vertex_most_akin_to_the_window(
    graph: tuple[int, int, int], window: int
) -> None:
    neighbours, degrees = random_graph(*graph)
    lists = as_lists(neighbours, degrees)
    order = Gorder(window).fit(Adjacency(neighbours, degrees), None, 4, 1).tolist()
    in_degrees = np.bincount([u for row in lists for u in row], minlength=len(lists))
    assert order[0] == in_degrees.argmax()
    for at in range(1, len(order)):
        last = order[max(0, at - window) : at]
        akin = [sum(oracle.kinship(lists, u, v) for v in last) for u in order[at:]]
        assert akin[0] == max(akin)


@settings(max_examples=30, deadline=None)
@given(graphs, st.integers(2, 7))
def test_windowed_gorder_fills_the_pages_of_the_oracle(graph: tuple[int, int, int], b: int) -> None:
    neighbours, degrees = random_graph(*graph)
    adjacency = Adjacency(neighbours, degrees)
    walk = BreadthFirstOrder().fit(adjacency, None, b, 1).tolist()
    lists = as_lists(neighbours, degrees)
    renamed = [
        [walk.index(u) for u in lists[v]] for v in walk
    ]  # one part: its members in the order of the walk
    full = [{walk[i] for i in page} for page in oracle.gorder_pages(renamed, b) if len(page) == b]
    assert pages_of(GorderWindowed().fit(adjacency, None, b, 1), b)[: len(full)] == full


@pytest.mark.parametrize("seed", range(12))
def test_margo_fills_the_pages_of_the_oracle(seed: int) -> None:
    n, b = 20 + 3 * seed, 2 + seed % 4
    graph, points = near_graph(n, 5, seed)
    weights = oracle.margo_weights(as_lists(*graph), points.astype(np.float64))
    assert len(set(weights.values())) > 3
    full = [set(page) for page in oracle.margo_pages(n, weights, b) if len(page) == b]
    assert pages_of(MargoOrder().fit(graph, points, b, 1), b)[: len(full)] == full


@settings(max_examples=30, deadline=None)
@given(graphs, st.integers(1, 7))
def test_bisection_makes_the_swaps_of_the_oracle(graph: tuple[int, int, int], b: int) -> None:
    neighbours, degrees = random_graph(*graph)
    adjacency = Adjacency(neighbours, degrees)
    walk = BreadthFirstOrder().fit(adjacency, None, b, 1).tolist()
    expected = oracle.bisect(as_lists(neighbours, degrees), walk, b, 5)
    assert GraphBisectionOrder(rounds=5).fit(adjacency, None, b, 1).tolist() == expected


@pytest.mark.parametrize("seed", range(8))
def test_kmeans_pages_are_those_of_the_oracle(seed: int) -> None:
    points = some_points(90 + seed, seed)
    graph = Adjacency(np.zeros((len(points), 1), np.uint32), np.zeros(len(points), np.int32))
    expected = oracle.two_means(points, np.arange(len(points)), 7, 6)
    assert KmeansPagesOrder().fit(graph, points, 7, 1).tolist() == expected


def test_equal_vectors_are_split_in_input_order() -> None:
    graph = Adjacency(np.zeros((10, 1), np.uint32), np.zeros(10, np.int32))
    assert KmeansPagesOrder().fit(graph, np.full((10, 4), 9, np.uint8), 3, 1).tolist() == list(range(10))


@pytest.mark.parametrize("order", [KmeansPagesOrder, GraphBisectionOrder])
def test_a_large_range_is_divided_like_a_small_one(order: Any) -> None:
    graph, points = near_graph(200, 6, 3)
    small = order().fit(graph, points, 4, 1)
    with small_blocks(7):
        np.testing.assert_array_equal(with_large(order, 20).fit(graph, points, 4, 1, threads=2), small)


def test_what_crosses_parts_is_packed_in_the_end() -> None:
    # Four cliques of a page each, two of them cut in two by the parts: only the last packing can join the halves.
    clique = np.array([[u for u in range(4) if u != v] for v in range(4)], np.uint32)
    graph = Adjacency(np.concatenate([clique + at for at in range(0, 16, 4)]), np.full(16, 3, np.int32))
    places = [0, 1, 2, 3, 204, 205, 206, 207, 4, 5, 200, 201, 6, 7, 202, 203]
    points = np.array(places, np.uint8)[:, None]
    for order in (GorderWindowed(part_pages=2), MargoOrder(part_pages=2)):
        pages = pages_of(order.fit(graph, points, 4, 1), 4)
        assert set(pages) == {frozenset(range(at, at + 4)) for at in range(0, 16, 4)}


@pytest.mark.parametrize("with_points", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_no_part_is_larger_than_asked_for_whatever_is_left_over(with_points: bool, threads: int) -> None:
    graph, points = near_graph(503, 4, 1)
    b, part_pages, sizes, seen = 4, 2, [], []

    def pack(members: np.ndarray, places: np.ndarray, first: int) -> Packed:
        """Fill no page: groups of b - 1, so that everything is left over."""
        sizes.append(len(members))
        seen.extend(members.tolist())
        np.testing.assert_array_equal(places[members] - first, np.arange(len(members)))
        full, last = divmod(len(members), b - 1)
        return Packed(members, np.array([b - 1] * full + [last] * (last > 0), np.uint16), 1)

    given = Given(graph, points if with_points else None, b, 1, threads, Work(), in_memory)
    order = pack_in_parts(given, part_pages, pack)
    assert sorted(order.tolist()) == list(range(503))
    assert max(sizes) <= part_pages * b
    assert sorted(seen) == sorted([*range(503)] * 2)  # all were left over once


def test_gorder_counts_every_edge_it_looks_at() -> None:
    graph = Adjacency(np.array([[1], [2], [0]], np.uint32), np.ones(3, np.int32))  # a ring
    work = Work()
    Gorder(window=5).fit(graph, None, 2, 1, work=work)
    # The reverse graph; then two are placed before the last, each with a neighbour, a source, and that one's list.
    assert work.spent == 2 * 3 + 2 * 3
