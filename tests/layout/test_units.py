"""Pages in units: each keeps its vertices, and the units are those of the oracle."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.layout import units as oracle
from tests.support.indexes.layout import as_lists, random_graph, random_order
from tests.support.processes.memory import peak_growth

from indexmill.layout.order import Adjacency, Given, Work, in_memory
from indexmill.layout.portfolio import ORDERS
from indexmill.layout.units.order import UNIT_PAGES, InUnits, in_units
from indexmill.layout.units.page_graph import NEIGHBOURS, page_graph, room_for_edges
from indexmill.pipeline.mill.peak import has_proportional_sizes

graphs = st.tuples(st.integers(1, 150), st.integers(1, 24), st.integers(0, 2**31))
small_graphs = st.tuples(st.integers(1, 45), st.integers(1, 24), st.integers(0, 2**31))
sizes = st.sampled_from([(8, 2), (6, 3), (4,), (2,), (12, 4, 2)])


def asked(graph: Adjacency, b: int, work: Work | None = None, scratch: Any = in_memory) -> Given:
    return Given(graph, None, b, 1, 1, work or Work(), scratch)


def pages_of(order: np.ndarray, b: int) -> list[tuple[int, ...]]:
    return [tuple(order[at : at + b].tolist()) for at in range(0, len(order), b)]


@settings(max_examples=150, deadline=None)
@given(graphs, st.integers(1, 6), sizes)
def test_pages_keep_their_vertices_and_a_last_one_that_is_not_full_its_place(
    graph: tuple[int, int, int], b: int, unit_pages: tuple[int, ...]
) -> None:
    before = random_order(graph[0], graph[2])
    after = in_units(before.copy(), asked(Adjacency(*random_graph(*graph)), b), unit_pages)
    assert after.dtype == np.uint32
    assert sorted(pages_of(after, b)) == sorted(pages_of(before, b))
    if graph[0] % b:
        assert pages_of(after, b)[-1] == pages_of(before, b)[-1]


@settings(max_examples=60, deadline=None)
@given(small_graphs, st.integers(1, 6), sizes)
def test_units_are_those_of_the_oracle(
    graph: tuple[int, int, int], b: int, unit_pages: tuple[int, ...]
) -> None:
    neighbours, degrees = random_graph(*graph)
    before = random_order(graph[0], graph[2])
    after = in_units(before, asked(Adjacency(neighbours, degrees), b), unit_pages)
    n_pages, most = graph[0] // b, room_for_edges(b * graph[1] - 7) * 2 // 5
    expected = list(range(n_pages))
    if n_pages > unit_pages[-1] and most:
        lists = as_lists(neighbours, degrees)
        weights = oracle.page_graph(lists, before.tolist(), b, NEIGHBOURS, most)
        expected = oracle.in_units(weights, n_pages, unit_pages)
    assert pages_of(after, b)[:n_pages] == [pages_of(before, b)[page] for page in expected]


def test_the_page_graph_counts_edges_between_full_pages() -> None:
    lists = [[2, 3, 4], [2, 1, 6], [0, 4, 5], [6, 4, 0], [0, 1, 3], [4, 0, 1], [0, 2, 4]]
    graph = Adjacency(np.array(lists, np.uint32), np.full(7, 3, np.int32))
    found = page_graph(graph, np.arange(7, dtype=np.uint32), 2, np.empty((3, 10), np.uint32))
    assert found.degrees.tolist() == [2, 2, 2]
    # Vertex 6 is alone on the last page; vertex 1 is its own neighbour.
    assert found.neighbours[:, :2].tolist() == [[1, 2], [2, 0], [0, 1]]
    assert found.weights[:, :2].tolist() == [[3, 1], [3, 2], [4, 1]]
    assert found.sources[: found.starts[-1]].tolist() == [1, 2, 0, 2, 0, 1]


def test_pages_of_a_cluster_share_a_unit() -> None:
    b, pages, clusters = 4, 16, 20
    size = b * pages
    rng = np.random.default_rng(3)
    of = rng.permutation(np.repeat(np.arange(clusters), pages))  # cluster of each page
    vertices = np.arange(clusters * size).reshape(clusters, pages, b)
    place = [0] * clusters
    order = []
    for cluster in of:
        order.append(vertices[cluster, place[cluster]])
        place[cluster] += 1
    near = [
        rng.choice(np.delete(np.arange(size), i % size), 24, replace=False) for i in range(clusters * size)
    ]
    neighbours = np.array(near) + np.arange(clusters * size)[:, None] // size * size
    graph = Adjacency(neighbours.astype(np.uint32), np.full(clusters * size, 24, np.int32))
    after = in_units(np.concatenate(order).astype(np.uint32), asked(graph, b), (64, 16))
    units = (after // size).reshape(clusters, size)
    assert (units == units[:, :1]).all()
    assert sorted(units[:, 0].tolist()) == list(range(clusters))


@pytest.mark.parametrize("n", [32 * 3, 31])
def test_pages_that_fit_in_one_unit_stay_where_they_are(n: int) -> None:
    graph = Adjacency(*random_graph(n, 12, 1))
    order = random_order(n, 1)
    np.testing.assert_array_equal(in_units(order, asked(graph, 6)), order)
    assert -(-n // 6) <= UNIT_PAGES[-1]


def test_pages_stay_where_they_are_once_work_is_spent() -> None:
    graph, order = Adjacency(*random_graph(200, 12, 1)), random_order(200, 1)
    whole = Work()
    moved = in_units(order, asked(graph, 2, whole))
    assert (moved != order).any()
    np.testing.assert_array_equal(in_units(order, asked(graph, 2, Work(whole.spent))), moved)
    np.testing.assert_array_equal(in_units(order, asked(graph, 2, Work(whole.spent - 1))), order)


@pytest.mark.parametrize(("b", "r"), [(1, 8), (1, 32), (3, 4), (4, 63), (15, 32)])
def test_scratch_space_is_no_larger_than_the_lists(b: int, r: int) -> None:
    taken = []

    def scratch(dtype: Any, shape: tuple[int, ...]) -> AbstractContextManager[np.ndarray]:
        taken.append(np.prod(shape) * np.dtype(dtype).itemsize)
        return in_memory(dtype, shape)

    graph = Adjacency(*random_graph(1000, r, 1))
    in_units(random_order(1000, 1), asked(graph, b, scratch=scratch))
    assert sum(taken) <= graph.neighbours.nbytes
    assert bool(taken) == (b * r >= 12)


def test_orders_that_pack_pages_are_in_units() -> None:
    in_halves = {"kmeans-pages", "graph-bisection"}  # whose halves are units of every size
    without = {name for name, order in ORDERS.items() if not isinstance(order, InUnits)}
    assert without == {"identity", "random", "breadth-first"} | in_halves
    for name in sorted(set(ORDERS) - without):
        order = ORDERS[name]
        assert isinstance(order, InUnits)
        assert order.uses_points == order.pages.uses_points
        assert order.needs_points == order.pages.needs_points
        assert order.memory.a_vertex >= order.pages.memory.a_vertex


GRAPH = """
import numpy as np
from functools import partial
from indexmill.formats.pagefile.mapped import scratch_array
from indexmill.layout.order import Adjacency, Given, Work
from indexmill.layout.units.order import in_units

n, R = 400_000, 16
neighbours = np.lib.format.open_memmap(path / "neighbours.npy", "w+", np.uint32, (n, R))
degrees = np.lib.format.open_memmap(path / "degrees.npy", "w+", np.int32, (n,))
rng = np.random.default_rng(1)
for first in range(0, n, 10_000):
    neighbours[first : first + 10_000] = rng.integers(n, size=(10_000, R))
degrees[:] = R
small = np.zeros((40, R), np.uint32)
given = Given(Adjacency(neighbours, degrees), None, 1, 1, 1, Work(), partial(scratch_array, path))
order = np.arange(n, dtype=np.uint32)
in_units(order[:40].copy(), given._replace(graph=Adjacency(small, np.full(40, R, np.int32))))
"""


@pytest.mark.memory
@pytest.mark.skipif(not has_proportional_sizes(), reason="needs Linux's smaps_rollup")
def test_units_of_one_node_a_page_take_at_most_20_bytes_a_vertex_beside_the_order() -> None:
    grown = peak_growth(GRAPH, "after = in_units(order, given)")
    assert 8 * 400_000 < grown < 20 * 400_000
