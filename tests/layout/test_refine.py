"""Restreaming and its start: their rounds equal those of their oracles, and their objective never falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.layout import refine as oracle
from tests.support.indexes.layout import as_lists, clusters, random_graph

from indexmill.layout import restream
from indexmill.layout.bnp import BnpOrder
from indexmill.layout.order import Adjacency, Given, Order, RandomOrder
from indexmill.layout.portfolio import ORDERS
from indexmill.layout.restream import RestreamOrder, edges_within_pages
from indexmill.reader.threads import small_blocks

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


@pytest.mark.parametrize("order", [RestreamOrder(), RestreamOrder(balance=False)])
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
