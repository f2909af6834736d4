"""Bundles: repeated queries get pages of their own, and the other vertices keep theirs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.layout import bundles as oracle

from indexmill.layout.bundles import (
    COMPARED,
    NOBODY,
    Bundled,
    bundle_size,
    bundled,
    leaders_of,
)
from indexmill.layout.order import Adjacency, Given, Work, in_memory
from indexmill.layout.units.order import UNIT_PAGES, in_units

cases = st.tuples(st.integers(1, 60), st.integers(1, 14), st.integers(0, 2**31))


def some_log(n: int, n_queries: int, width: int, seed: int) -> np.ndarray:
    """Queries that repeat, in part or not at all; rows end early."""
    rng = np.random.default_rng(seed)
    wanted = np.full((n_queries, width), NOBODY)
    for query in range(n_queries):
        vertices = rng.permutation(n)[:width]
        if query and rng.random() < 0.6:
            earlier = wanted[rng.integers(query)]
            earlier = earlier[earlier != NOBODY][: rng.integers(1, width + 1)]
            vertices = np.concatenate([earlier, vertices[~np.isin(vertices, earlier)]])
        vertices = vertices[: rng.integers(width // 2, width + 1)]
        wanted[query, : len(vertices)] = vertices
    return wanted


def popular(n: int, n_popular: int, times: int) -> np.ndarray:
    """Each of some popular queries `times` times, in turn; they want 60 vertices each, which no other wants."""
    vertices = np.random.default_rng(3).permutation(n)[: 60 * n_popular].reshape(n_popular, 60)
    return np.tile(vertices, (times, 1))


def pages_of(order: np.ndarray, b: int) -> list[frozenset[int]]:
    return [frozenset(order[first : first + b].tolist()) for first in range(0, len(order), b)]


def weighed(order: np.ndarray, wanted: np.ndarray, b: int) -> Bundled:
    return bundled(order.astype(np.uint32), wanted, leaders_of(wanted), b)


@settings(max_examples=80, deadline=None)
@given(cases, st.integers(20, 60))
def test_groups_are_those_of_the_oracle(case: tuple[int, int, int], n: int) -> None:
    n_queries, width, seed = case
    wanted = some_log(n, n_queries, width, seed)
    found = leaders_of(wanted)
    assert found.tolist() == oracle.leaders(wanted.tolist(), COMPARED)
    some = n_queries // 2
    assert (leaders_of(wanted[:some]) == found[:some]).all(), "later queries change no group"


@settings(max_examples=80, deadline=None)
@given(cases, st.integers(1, 9), st.integers(60, 20_000))
def test_an_order_with_bundles_is_a_bijection_of_whole_pages(
    case: tuple[int, int, int], b: int, n: int
) -> None:
    n_queries, width, seed = case
    order = np.random.default_rng(seed).permutation(n)
    wanted = some_log(min(n, 200), n_queries, width + 40, seed)
    found = weighed(order, wanted, b)
    assert sorted(found.order.tolist()) == list(range(n))
    assert (found.sizes % b == 0).all()
    assert ((found.sizes > 0) & (found.sizes <= bundle_size(b))).all()
    lead, kept = set(found.order[: found.sizes.sum()].tolist()), set(pages_of(found.order, b))
    for page in pages_of(order, b)[: n // b]:
        assert page & lead or page in kept, "a page that lost no vertex is a page still"


@settings(max_examples=60, deadline=None)
@given(cases)
def test_bundles_are_those_of_the_oracle(case: tuple[int, int, int]) -> None:
    n_queries, width, seed = case
    n, b = 5000, 5
    wanted = some_log(300, n_queries, width + 40, seed)
    leaders = leaders_of(wanted)
    found = bundled(np.arange(n, dtype=np.uint32), wanted, leaders, b)
    listed = leaders.tolist()
    rates = {leader: oracle.rate(leader, listed) for leader in sorted(set(listed))}
    ranked = sorted((one for one in rates if rates[one] * n >= 120), key=lambda one: (-rates[one], one))
    expected: list[int] = []
    for leader in ranked:
        group = wanted[leaders == leader].tolist()
        free = [v for v in oracle.most_wanted(group) if v not in expected][:60]
        expected += free[: len(free) // b * b]
    assert found.order[: found.sizes.sum()].tolist() == expected


@pytest.mark.parametrize("b", [1, 3, 15, 40])
def test_what_a_repeated_query_wants_stands_on_pages_of_its_own_at_the_front(b: int) -> None:
    n, n_popular = 12_000, 4
    wanted = popular(n, n_popular, 10)
    order = np.random.default_rng(4).permutation(n)
    found = weighed(order, wanted, b)
    slots = np.argsort(found.order)
    for query in wanted[:n_popular]:
        most_wanted = slots[query[: 60 // b * b]]
        assert len(np.unique(most_wanted // b)) == 60 // b
        assert most_wanted.max() < n_popular * 60


def test_queries_that_never_repeat_change_nothing() -> None:
    order = np.random.default_rng(4).permutation(12_001)
    found = weighed(order, popular(12_001, 150, 1), 15)
    assert (found.order == order).all()
    assert len(found.sizes) == 0


@pytest.mark.parametrize(("n", "bundles"), [(12_000, 2), (12_200, 73)])
def test_more_frequent_queries_come_first_and_too_rare_ones_get_no_bundle(n: int, bundles: int) -> None:
    wanted = popular(12_000, 73, 1)
    sometimes, often = np.repeat(wanted[:1], 20, axis=0), np.repeat(wanted[1:2], 40, axis=0)
    twice = np.repeat(wanted[2:], 2, axis=0)
    found = weighed(np.arange(n), np.concatenate([sometimes, often, twice]), 15)
    assert set(found.order[:60].tolist()) == set(wanted[1].tolist())
    assert set(found.order[60:120].tolist()) == set(wanted[0].tolist())
    assert len(found.sizes) == bundles, "two of 202 queries for 60 of n vertices"


def test_queries_that_came_once_get_bundles_where_such_queries_come_again() -> None:
    n = 20_000
    rows = popular(n, 160, 1)
    first, new = rows[:50], rows[50:100]
    again = weighed(np.arange(n), np.concatenate([first, first[:40], new[:10]]), 15)
    assert len(again.sizes) == 60, "those that came again, the ten that did not, and ten new ones"
    never = weighed(np.arange(n), np.concatenate([first, new]), 15)
    assert len(never.sizes) == 0


def test_a_vertex_that_many_want_is_in_the_bundle_of_the_largest_group() -> None:
    n, rows = 12_000, popular(12_000, 2, 1)
    rows[1, 30:] = rows[0, 30:]
    found = weighed(
        np.arange(n), np.concatenate([np.repeat(rows[:1], 30, 0), np.repeat(rows[1:], 10, 0)]), 15
    )
    assert set(found.order[:60].tolist()) == set(rows[0].tolist())
    assert found.sizes.tolist() == [60, 30]


def ring(n: int, degree: int) -> Adjacency:
    """Each vertex has edges to those next to it on a ring."""
    steps = np.concatenate([np.arange(1, degree // 2 + 1), -np.arange(1, degree // 2 + 1)])
    return Adjacency(((np.arange(n)[:, None] + steps) % n).astype(np.uint32), np.full(n, degree, np.int32))


def edges_in_units(graph: Adjacency, order: np.ndarray, nodes: int) -> float:
    """Share of the edges whose ends are in one unit of so many nodes, counted from the start of the file."""
    units = np.argsort(order) // nodes
    return float((units[graph.neighbours] == units[:, None]).mean())


@pytest.mark.parametrize(("b", "n_popular"), [(5, 2), (5, 7), (15, 3), (60, 2)])
def test_pages_behind_bundles_are_in_units_that_begin_where_reads_do(b: int, n_popular: int) -> None:
    n = 24_000
    graph, wanted = ring(n, 40), popular(n, n_popular, 10)
    units = Given(graph, None, b, 1, 1, Work(), in_memory)
    order = in_units(np.arange(n, dtype=np.uint32), units)
    leaders = leaders_of(wanted)
    plain, found = (bundled(order, wanted, leaders, b, some) for some in (None, units))
    bundles = int(found.sizes.sum())
    assert bundles == 60 * n_popular
    assert (found.sizes == plain.sizes).all()
    assert (found.order[:bundles] == plain.order[:bundles]).all()
    assert sorted(pages_of(found.order, b), key=min) == sorted(pages_of(plain.order, b), key=min)
    smallest = UNIT_PAGES[-1] * b
    before, moved, after = (edges_in_units(graph, one, smallest) for one in (order, plain.order, found.order))
    assert after > 0.9 * before
    assert after > moved


def test_without_a_bundle_no_page_moves() -> None:
    n, b = 12_000, 5
    units = Given(ring(n, 20), None, b, 1, 1, Work(), in_memory)
    order = np.random.default_rng(4).permutation(n).astype(np.uint32)
    wanted = popular(n, 150, 1)
    assert (bundled(order, wanted, leaders_of(wanted), b, units).order == order).all()
