"""Stars of a large graph are packed district by district: near vectors together, whatever the threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.layout import districts as oracle
from tests.oracles.layout import star
from tests.support.indexes.layout import as_lists, random_graph

from indexmill.layout.districts import order as districts_order
from indexmill.layout.districts.borders import Borders, fit_borders, sampled_rows
from indexmill.layout.districts.inside import keep_inside
from indexmill.layout.districts.order import (
    DISTRICT_VERTICES,
    InDistricts,
    Packed,
    groups_of,
    joined,
    pack_district,
    pack_group,
)
from indexmill.layout.order import Adjacency, Work
from indexmill.layout.portfolio import ORDERS, in_districts
from indexmill.layout.star import StarOrder, star_order
from indexmill.layout.units.order import InUnits


class Small(InDistricts):
    """Districts of so few vertices that a small graph has several."""

    vertices = 100


SMALL = Small(StarOrder())
#: Its pages stay where districts put them, as each is a unit.
WITHOUT_UNITS = Small(StarOrder(), (1,))


def clustered(n: int, dim: int = 6, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 4, (n, 1)) * 50 + rng.integers(0, 60, (n, dim))).astype(np.uint8)


def members_of(points: np.ndarray, order: InDistricts) -> list[np.ndarray]:
    """The vertices of each district."""
    k = order.districts(len(points))
    districts = fit_borders(points[sampled_rows(len(points), k)], k).districts_of(points)
    return [np.flatnonzero(districts == district) for district in range(k)]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("k", [2, 3, 7])
def test_a_vector_is_on_its_side_of_every_border(dtype: type, k: int) -> None:
    points = np.random.default_rng(k).integers(0, 256, (300, 9)).astype(dtype)
    borders = fit_borders(points, k)
    assert borders.n_districts == k
    naive = [
        oracle.district_of(borders.directions.tolist(), borders.places.tolist(), p) for p in points.tolist()
    ]
    clear = np.array([distance > 0.1 for _, distance in naive])  # elsewhere rounding may decide
    assert clear.mean() > 0.95
    np.testing.assert_array_equal(borders.districts_of(points)[clear], np.array([d for d, _ in naive])[clear])


def test_districts_are_of_one_size_but_for_the_luck_of_the_sample() -> None:
    points, k = np.random.default_rng(0).normal(size=(20_000, 12)).astype(np.float32), 5
    counts = np.bincount(fit_borders(points, k).districts_of(points), minlength=k)
    assert abs(counts - 4000).max() <= 2
    sample = points[sampled_rows(len(points), k)]
    assert len(sample) == 256 * k
    counts = np.bincount(fit_borders(sample, k).districts_of(points), minlength=k)
    assert abs(counts / 4000 - 1).max() < 0.25


def test_threads_do_not_reach_the_borders() -> None:
    points = np.random.default_rng(3).normal(size=(40_000, 5)).astype(np.float32)
    alone, together = fit_borders(points, 4), fit_borders(points, 4, threads=3)
    np.testing.assert_array_equal(alone.directions, together.directions)
    np.testing.assert_array_equal(alone.places, together.places)
    np.testing.assert_array_equal(alone.districts_of(points), together.districts_of(points, 3))


def test_near_vectors_share_a_district() -> None:
    centres = np.random.default_rng(4).normal(size=(4, 8)) * 100
    own = np.arange(4000) % 4
    points = (centres[own] + np.random.default_rng(5).normal(size=(4000, 8))).astype(np.float32)
    districts = fit_borders(points[:1000], 4).districts_of(points)
    assert len({(a, b) for a, b in zip(own.tolist(), districts.tolist(), strict=True)}) == 4


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 5), (700, 2), (10**9, 3815), (10**6, 2000)])
def test_a_sample_has_a_vector_of_each_district_and_is_spread_evenly(n: int, k: int) -> None:
    rows = sampled_rows(n, k)
    assert min(n, k) <= len(rows) <= min(n, 1 << 18)
    assert rows[0] == 0
    assert rows[-1] < n
    steps = np.diff(rows)
    assert len(rows) == 1 or (steps.max() - steps.min() <= 1 and steps.min() >= 1)


@settings(max_examples=40, deadline=None)
@given(st.tuples(st.integers(1, 200), st.integers(1, 8), st.integers(0, 2**31)), st.floats(0, 1))
def test_the_edges_inside_are_those_between_members(graph: tuple[int, int, int], share: float) -> None:
    neighbours, degrees = random_graph(*graph)
    lists = as_lists(neighbours, degrees)
    rng = np.random.default_rng(graph[2])
    members = np.flatnonzero(rng.random(graph[0]) < share).astype(np.uint32)
    own, lengths = neighbours[members], degrees[members]
    keep_inside(members, own, lengths, graph[0])
    assert as_lists(own, lengths) == oracle.inside(lists, members.tolist())


def test_an_edge_to_the_vertex_itself_goes() -> None:
    lists, degrees = np.array([[0, 65, 64], [65, 65, 0]], np.uint32), np.array([3, 3], np.int32)
    keep_inside(np.array([0, 65], np.uint32), lists, degrees, 66)
    assert as_lists(lists, degrees) == [[1], [0]]


def pages_of(order: np.ndarray, b: int) -> set[frozenset[int]]:
    return {frozenset(page) for page in order[: len(order) // b * b].reshape(-1, b).tolist()}


def kept_of(pack: Callable[..., Any], made: list[np.ndarray], *arguments: Any) -> Any:
    packed = pack(*arguments)
    made.append(packed.pages if isinstance(packed, Packed) else packed)
    return packed


def graph_inside(lists: list[list[int]], members: list[int]) -> Adjacency:
    inside = oracle.inside(lists, members)
    neighbours = np.zeros((len(members), 8), np.uint32)
    for i, one in enumerate(inside):
        neighbours[i, : len(one)] = one
    return Adjacency(neighbours, np.array([len(one) for one in inside], np.int32))


@pytest.mark.parametrize("b", [1, 2, 4])
def test_full_stars_of_districts_are_pages_and_what_they_leave_over_is_packed_together(b: int) -> None:
    points = clustered(430)
    neighbours, degrees = random_graph(430, 8, 2)
    lists = as_lists(neighbours, degrees)
    order = WITHOUT_UNITS.fit(Adjacency(neighbours, degrees), points, b, 1)
    assert sorted(order.tolist()) == list(range(430))
    full, rest = set(), []
    for members in members_of(points, SMALL):
        for one in star.pack(oracle.inside(lists, members.tolist()), b):
            vertices = members[one].tolist()
            if len(one) == b:
                full.add(frozenset(vertices))
            else:
                rest += vertices
    assert pages_of(order[: b * len(full)], b) == full
    assert sorted(order[b * len(full) :].tolist()) == sorted(rest)


def test_what_is_left_over_has_the_stars_of_its_own_graph() -> None:
    neighbours, degrees = random_graph(430, 8, 2)
    members = np.random.default_rng(1).permutation(430)[:200].astype(np.uint32)
    order = pack_group(members, Adjacency(neighbours[members], degrees[members]), 430, 4)
    inside = graph_inside(as_lists(neighbours, degrees), members.tolist())
    assert sorted(order.tolist()) == sorted(members.tolist())
    assert pages_of(order, 4) == pages_of(members[star_order(*inside, 4)], 4)


@pytest.mark.parametrize("b", [6, 15])
def test_districts_are_packed_whole_where_few_stars_fill_a_page(b: int) -> None:
    points = clustered(430)
    neighbours, degrees = random_graph(430, 8, 2)
    order = WITHOUT_UNITS.fit(Adjacency(neighbours, degrees), points, b, 1)
    assert sorted(order.tolist()) == list(range(430))
    pages = set()
    for members in members_of(points, SMALL):
        inside = graph_inside(as_lists(neighbours, degrees), members.tolist())
        pages |= pages_of(members[star_order(*inside, b)], b)
    assert pages_of(order[: b * len(pages)], b) == pages


def test_each_group_of_districts_is_followed_by_what_it_leaves_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(districts_order, "TOGETHER", 2)
    assert groups_of(5) == [(0, 2), (2, 3), (3, 5)]
    assert groups_of(2) == [(0, 2)]
    pages = [np.arange(10 * i, 10 * i + 10, dtype=np.uint32) for i in range(5)]
    rests = [np.arange(a, b, dtype=np.uint32) for a, b in ((50, 63), (63, 63), (63, 70))]
    order = joined(pages, rests, 10)
    assert order[:60].tolist() == [*range(20), *range(50, 60), *range(20, 50)]
    assert set(order[60:].tolist()) == {*range(60, 70)}  # 3 of the first group and 7 of the last fill a page


@pytest.mark.parametrize("b", [2, 4, 6])
def test_units_of_a_district_are_units_of_the_order(b: int, monkeypatch: pytest.MonkeyPatch) -> None:
    units, made = (8, 2), []

    for name in ("pack_district", "pack_group"):
        pack = getattr(districts_order, name)
        monkeypatch.setattr(districts_order, name, lambda *a, pack=pack: kept_of(pack, made, *a))
    points, graph = clustered(930), Adjacency(*random_graph(930, 8, 2))
    order = Small(StarOrder(), units).fit(graph, points, b, 1)
    assert sorted(order.tolist()) == list(range(930))
    slots = np.argsort(order)
    pieces = [slots[piece] for piece in made]
    assert len(pieces) >= 10
    for unit in units:
        for piece in pieces:
            whole = piece[: len(piece) // (unit * b) * unit * b].reshape(-1, unit * b)
            assert (whole[:, 0] % (unit * b) == 0).all()
            assert (np.diff(whole, axis=1) == 1).all()


def test_only_whole_pages_of_a_district_are_put_in_units() -> None:
    neighbours, degrees = random_graph(430, 8, 2)
    members = np.arange(0, 430, 2, dtype=np.uint32)

    def packed(units: tuple[int, ...]) -> Packed:
        return pack_district(members, Adjacency(neighbours[members], degrees[members]), 430, 3, units)

    as_packed, in_small, in_large = packed((1000,)), packed((1,)), packed((16, 4))
    assert len(as_packed.pages) > 16 * 3
    for one in (in_small, in_large):
        assert pages_of(one.pages, 3) == pages_of(as_packed.pages, 3)
        assert (one.pages != as_packed.pages).any()
        assert sorted(one.rest.tolist()) == sorted(as_packed.rest.tolist())


def test_threads_do_not_reach_the_order() -> None:
    points, graph = clustered(900), Adjacency(*random_graph(900, 8, 3))
    alone, together = Work(), Work()
    order = SMALL.fit(graph, points, 5, 1, work=alone)
    np.testing.assert_array_equal(order, SMALL.fit(graph, points, 5, 1, threads=4, work=together))
    assert alone.spent == together.spent > 0


def test_equal_vectors_are_a_district_that_is_ordered_in_parts() -> None:
    points, graph = np.full((1000, 4), 9, np.uint8), Adjacency(*random_graph(1000, 6, 7))
    assert sorted(map(len, members_of(points, SMALL)))[-2:] == [0, 1000]
    cuts = SMALL.cuts(1000)
    assert np.diff(cuts).max() <= SMALL.most
    order = SMALL.fit(graph, points, 10, 1)
    assert sorted(order.tolist()) == list(range(1000))
    part = np.searchsorted(cuts, order, side="right")
    inner = order[: sum(size // 10 * 10 for size in np.diff(cuts).tolist())]
    assert (np.diff(part[: len(inner)]) >= 0).all()


def test_what_very_many_equal_vectors_leave_over_is_packed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(districts_order, "TOGETHER", 1)
    points, graph = np.full((1000, 4), 9, np.uint8), Adjacency(*random_graph(1000, 8, 7))
    made: list[np.ndarray] = []
    monkeypatch.setattr(districts_order, "pack_group", lambda *a: kept_of(pack_group, made, *a))
    order = SMALL.fit(graph, points, 4, 1)
    assert sorted(order.tolist()) == list(range(1000))
    assert max(map(len, made)) <= 100
    assert sum(map(len, made)) > 200
    for piece in made:
        assert pages_of(piece, 4) <= pages_of(order, 4)


def test_a_small_graph_or_one_without_vectors_is_one_district() -> None:
    most = DISTRICT_VERTICES * 3 // 2
    assert in_districts("star", most - 1) is None
    assert in_districts("star", most) is ORDERS["star"]
    assert in_districts("agglomerative", 10 * most) is None
    assert in_districts("file", 10 * most) is None
    points, graph = clustered(149), Adjacency(*random_graph(149, 8, 3))
    whole = InUnits(StarOrder()).fit(graph, None, 5, 1)
    np.testing.assert_array_equal(SMALL.fit(graph, points, 5, 1), whole)
    graph = Adjacency(*random_graph(400, 8, 3))
    whole = InUnits(StarOrder()).fit(graph, None, 5, 1)
    np.testing.assert_array_equal(SMALL.fit(graph, None, 5, 1), whole)
    assert (SMALL.fit(graph, clustered(400), 5, 1) != whole).any()


def test_one_district_has_no_border() -> None:
    borders = fit_borders(clustered(10), 1)
    assert borders.n_districts == 1
    assert borders.districts_of(clustered(30)).tolist() == [0] * 30
    assert Borders(*borders).directions.shape == (0, 6)
