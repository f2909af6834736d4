"""Restreaming and swap polish: their objectives equal those of their oracles, and never fall."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.layout import refine as oracle
from tests.support.indexes.layout import as_lists, random_graph

from indexmill.layout import closeness, polish, restream
from indexmill.layout.bnp import BnpOrder
from indexmill.layout.closeness import page_state
from indexmill.layout.order import Adjacency, Given, Order, RandomOrder, Work
from indexmill.layout.polish import PolishOrder
from indexmill.layout.portfolio import ORDERS
from indexmill.layout.restream import RestreamOrder, edges_within_pages
from indexmill.reader.threads import BlockPool, small_blocks

cases = st.tuples(st.integers(1, 40), st.integers(1, 8), st.integers(0, 2**31))


@dataclass(frozen=True)
class Known(Order):
    """An order that is known."""

    order: np.ndarray

    def arrange(self, given: Given) -> np.ndarray:
        return self.order.copy()


def near_graph(n: int, r: int, seed: int) -> tuple[Adjacency, np.ndarray]:
    """The r nearest neighbours of each of n random points, nearest first."""
    points = np.random.default_rng(seed).integers(0, 256, (n, 6), np.uint8)
    wide = points.astype(np.int64)
    distances = ((wide[:, None] - wide) ** 2).sum(axis=2)
    np.fill_diagonal(distances, 1 << 40)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :r].astype(np.uint32)
    return Adjacency(nearest, np.full(n, r, np.int32)), points


def page_closeness(graph: Adjacency, points: np.ndarray, order: np.ndarray, b: int) -> float:
    """The sum of closeness over all pairs of vertices on a page, which the polish increases."""
    return float(page_state(graph, points[order], order, b, 1).held.sum() / 2)


def clusters(n_clusters: int, size: int) -> tuple[Adjacency, np.ndarray, np.ndarray]:
    """Cliques of near points far from each other; with the cluster of each vertex."""
    rng = np.random.default_rng(0)
    of = rng.permutation(np.repeat(np.arange(n_clusters), size))
    points = (of[:, None] * 20 + rng.integers(0, 3, (len(of), 4))).astype(np.uint8)
    mates = np.array([[u for u in np.flatnonzero(of == c) if u != v] for v, c in enumerate(of)], np.uint32)
    return Adjacency(mates, np.full(len(of), size - 1, np.int32)), points, of


@settings(max_examples=30, deadline=None)
@given(cases, st.integers(1, 12))
def test_closeness_within_pages_is_that_of_the_oracle(case: tuple[int, int, int], b: int) -> None:
    neighbours, degrees = random_graph(*case)
    points = np.random.default_rng(case[2]).integers(0, 256, (case[0], 5), np.uint8)
    order = RandomOrder().fit(Adjacency(neighbours, degrees), None, b, case[2])
    near = oracle.closeness(points, as_lists(neighbours, degrees), closeness.SCALE_NEIGHBOUR)
    expected = oracle.page_sum(near, order.tolist(), b)
    assert page_closeness(Adjacency(neighbours, degrees), points, order, b) == pytest.approx(
        expected, rel=1e-4
    )


@pytest.mark.parametrize("b", [2, 5, 7])
def test_a_swap_gains_what_the_oracle_counts(b: int) -> None:
    graph, points = near_graph(60, 6, b)
    order = RandomOrder().fit(graph, None, b, 3)
    state = page_state(graph, points[order], order, b, 1)
    near = oracle.closeness(points, as_lists(*graph), closeness.SCALE_NEIGHBOUR)
    for now in range(1, 20):
        before = oracle.page_sum(near, state.order.tolist(), b)
        some = np.arange(now % 3, 60, 3)
        gained, _ = polish.swap_batch(state, some, b, now, BlockPool(1))
        assert oracle.page_sum(near, state.order.tolist(), b) - before == pytest.approx(gained, abs=1e-3)
        held = [sum(near[v, u] for u in page) for page in oracle.pages(state.order.tolist(), b) for v in page]
        np.testing.assert_allclose(state.held, held, atol=1e-3)
        np.testing.assert_array_equal(state.order[state.slots], np.arange(60))
        np.testing.assert_array_equal(state.rows, points[state.order])


def test_a_vertex_makes_the_best_swap_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    n, b = 40, 4
    graph, points = near_graph(n, 8, 1)  # 8 neighbours and pages of 4: all within what a vertex looks at
    order = RandomOrder().fit(graph, None, b, 3)
    near = oracle.closeness(points, as_lists(*graph), closeness.SCALE_NEIGHBOUR)
    made = 0
    for v in range(n):
        state = page_state(graph, points[order], order.copy(), b, 1)
        gained, _ = polish.swap_batch(state, state.slots[v : v + 1].astype(np.int64), b, 1, BlockPool(1))
        page = {u: at // b for at, u in enumerate(order.tolist())}
        best = 0.0
        looked = {page[int(u)] for u in graph.neighbours[v]} - {page[v]}
        for u in (u for u in range(n) if page[u] in looked):
            swapped = order.tolist()
            i, j = swapped.index(v), swapped.index(u)
            swapped[i], swapped[j] = u, v
            best = max(best, oracle.page_sum(near, swapped, b) - oracle.page_sum(near, order.tolist(), b))
        assert gained <= best + 1e-4
        made += gained == pytest.approx(best, abs=1e-4)
    assert made >= 0.9 * n  # only the pairs that promise most are computed in full


@settings(max_examples=30, deadline=None)
@given(cases, st.integers(1, 50))
def test_polish_never_worsens_what_it_increases(case: tuple[int, int, int], b: int) -> None:
    graph = Adjacency(*random_graph(*case))
    points = np.random.default_rng(case[2]).integers(0, 256, (case[0], 5), np.uint8)
    start = RandomOrder().fit(graph, None, b, case[2])
    order = PolishOrder(Known(start), rounds=3).fit(graph, points, b, 1)
    assert sorted(order.tolist()) == list(range(case[0]))
    assert page_closeness(graph, points, order, b) >= page_closeness(graph, points, start, b) - 1e-4


def test_polish_brings_clusters_together() -> None:
    graph, points, of = clusters(8, 6)
    start = np.arange(48, dtype=np.uint32)
    order = PolishOrder(Known(start), rounds=40, least_gain=0).fit(graph, points, 6, 1)
    together = np.mean([len(set(of[order[at : at + 6]])) for at in range(0, 48, 6)])
    assert together < 0.5 * np.mean([len(set(of[at : at + 6])) for at in range(0, 48, 6)])


def test_polish_takes_equal_and_float_vectors_and_a_last_page_that_is_not_full() -> None:
    graph, points = near_graph(50, 5, 2)
    for rows in (np.zeros_like(points), points.astype(np.float32)):
        assert sorted(PolishOrder().fit(graph, rows, 7, 1).tolist()) == list(range(50))
    same = [PolishOrder().fit(graph, rows, 7, 1) for rows in (points, points.astype(np.float32))]
    np.testing.assert_array_equal(*same)  # whole numbers have the same distances in both types


def test_more_work_never_makes_the_polish_worse() -> None:
    graph, points = near_graph(300, 8, 4)
    start = RandomOrder().fit(graph, None, 5, 1)
    whole = Work()
    PolishOrder(Known(start)).fit(graph, points, 5, 1, work=whole)
    reached = []
    for share in (0, 4, 16, 64, 100):
        order = PolishOrder(Known(start)).fit(graph, points, 5, 1, work=Work(whole.spent * share // 100))
        reached.append(page_closeness(graph, points, order, 5))
    assert reached == sorted(reached)
    assert reached[0] < reached[2] < reached[-1]


@pytest.mark.parametrize("order", [PolishOrder(), RestreamOrder(), RestreamOrder(balance=False)])
def test_threads_do_not_reach_a_refined_order(order: Any) -> None:
    graph, points = near_graph(900, 8, 5)
    with small_blocks(16):
        alone = order.fit(graph, points, 4, 1)
        for threads in (2, 3):
            np.testing.assert_array_equal(alone, order.fit(graph, points, 4, 1, threads=threads))


@settings(max_examples=30, deadline=None)
@given(cases, st.integers(2, 12), st.booleans(), st.booleans(), st.integers(1, 64))
def test_a_round_streams_as_the_oracle_does(
    case: tuple[int, int, int], b: int, balance: bool, both: bool, batches: int
) -> None:
    graph, n = Adjacency(*random_graph(*case)), case[0]
    lists = as_lists(*graph)
    start = RandomOrder().fit(graph, None, b, case[2])
    restream_order = type("", (RestreamOrder,), {"batches": batches})(Known(start), 1, balance, both)
    order = restream_order.fit(graph, None, b, 1)
    around = [row + [u for u in range(n) if both and v in lists[u]] for v, row in enumerate(lists)]
    stream = np.random.default_rng([1, restream.STREAM]).permutation(n).tolist()
    expected = oracle.restream(around, start.tolist(), b, stream, -(-n // batches), balance)
    within = [oracle.edges_within(lists, o, b) for o in (start.tolist(), expected)]
    assert order.tolist() == (expected if n > b and within[1] > within[0] else start.tolist())


@settings(max_examples=30, deadline=None)
@given(cases, st.integers(1, 12), st.integers(0, 5))
def test_restreaming_keeps_the_best_round(case: tuple[int, int, int], b: int, rounds: int) -> None:
    graph = Adjacency(*random_graph(*case))
    start = RandomOrder().fit(graph, None, b, case[2])
    orders = [RestreamOrder(Known(start), r).fit(graph, None, b, 1) for r in range(rounds + 1)]
    within = [edges_within_pages(graph, order, b) for order in orders]
    assert within == sorted(within)
    assert within[-1] == oracle.edges_within(as_lists(*graph), orders[-1].tolist(), b)


@settings(max_examples=30, deadline=None)
@given(cases, st.integers(1, 12))
def test_padding_fills_pages_as_the_oracle_does(case: tuple[int, int, int], b: int) -> None:
    graph = Adjacency(*random_graph(*case))
    assert BnpOrder().fit(graph, None, b, 1).tolist() == oracle.padded(as_lists(*graph), b)


def test_block_neighbour_frequency_improves_on_padding_and_the_weights_on_both() -> None:
    graph, _ = near_graph(2000, 16, 5)
    padded, frequent, weighed = (ORDERS[name].fit(graph, None, 15, 1) for name in ("bnp", "bnf", "restream"))
    within = [edges_within_pages(graph, order, 15) for order in (padded, frequent, weighed)]
    assert within[0] < 0.9 * within[1] < 0.9 * within[2]


def test_restreaming_finds_cliques() -> None:
    graph, _, _ = clusters(30, 6)
    start = RandomOrder().fit(graph, None, 6, 1)
    order = RestreamOrder(Known(start)).fit(graph, None, 6, 1)
    assert edges_within_pages(graph, order, 6) > 5 * edges_within_pages(graph, start, 6)
