"""Agglomerative pages: lists and groups are those of the oracle, and pages hold what is near."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.layout import agglomerative as oracle
from tests.support.indexes.layout import as_lists, clusters, random_graph

from indexmill.layout.agglomerative.merging import NOBODY, Groups, merged
from indexmill.layout.agglomerative.near import NearLists, find_near, with_reverse
from indexmill.layout.agglomerative.order import AgglomerativeOrder
from indexmill.layout.agglomerative.packing import packed
from indexmill.layout.order import Adjacency, Work
from indexmill.layout.star import StarOrder

KEEP = 5
graphs = st.tuples(st.integers(1, 40), st.integers(1, 10), st.integers(0, 2**31))


def some_points(n: int, seed: int, dim: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, dim), np.uint8)


def near_lists(graph: Adjacency, points: np.ndarray, keep: int = KEEP) -> NearLists:
    n = len(points)
    ids, found = np.empty((n, keep), np.uint32), np.empty((n, keep), np.uint8)
    find_near(graph, points, ids, found, 1, Work())
    return with_reverse(ids, found, np.empty(n * keep, np.uint32), np.empty(n * keep, np.uint8), 1)


def kept(lists: NearLists) -> dict[tuple[int, int], int]:
    return {
        (v, int(u)): int(c)
        for v, row in enumerate(zip(lists.ids, lists.closeness, strict=True))
        for u, c in zip(*row, strict=True)
        if c > 0
    }


def members(groups: Groups) -> list[set[int]]:
    """The vertices of every group, by walking it."""
    found = []
    for name in np.flatnonzero(groups.sizes):
        group, v = [], name
        while v != NOBODY:
            group.append(int(v))
            v = groups.following[v]
        assert len(group) == groups.sizes[name]
        assert (groups.of[group] == name).all()
        found.append(set(group))
    return found


@settings(max_examples=40, deadline=None)
@given(graphs)
def test_the_closest_candidates_are_kept(case: tuple[int, int, int]) -> None:
    graph = Adjacency(*random_graph(*case))
    points = some_points(case[0], case[2])
    exact = oracle.closeness(points, as_lists(*graph), 8) * 255
    found = kept(near_lists(graph, points))
    for (v, u), c in found.items():
        assert abs(c - exact[v, u]) < 0.51, (v, u)
    for v, _ in enumerate(points):
        near = sorted((exact[v, u] for u in oracle.candidates(as_lists(*graph), v)), reverse=True)
        mine = sorted((exact[a, u] for a, u in found if a == v), reverse=True)
        assert mine == pytest.approx([c for c in near[:KEEP] if c >= 0.5][: len(mine)], abs=1.01)
        assert len(mine) >= sum(c > 0.51 for c in near[:KEEP])


@settings(max_examples=40, deadline=None)
@given(graphs)
def test_lists_lead_back(case: tuple[int, int, int]) -> None:
    lists = near_lists(Adjacency(*random_graph(*case)), some_points(case[0], case[2]))
    back = {
        (int(lists.sources[at]), u): int(lists.of_sources[at])
        for u in range(case[0])
        for at in range(lists.starts[u], lists.starts[u + 1])
    }
    assert back == kept(lists)
    assert len(back) == len(lists.sources)


@settings(max_examples=60, deadline=None)
@given(graphs, st.integers(2, 9), st.sampled_from([2, 16, 255]))
def test_groups_are_those_of_the_oracle(case: tuple[int, int, int], b: int, distinct: int) -> None:
    """Also of points with many copies, whose closeness is equal."""
    graph, points = Adjacency(*random_graph(*case)), some_points(case[0], case[2]) % distinct
    lists = near_lists(graph, points)
    expected = oracle.merged(oracle.both_ways(kept(lists)), case[0], b)
    found = members(merged(lists, b, 1, Work()))
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))


@settings(max_examples=40, deadline=None)
@given(graphs, st.integers(2, 9))
def test_no_two_groups_that_are_near_fit_a_page(case: tuple[int, int, int], b: int) -> None:
    lists = near_lists(Adjacency(*random_graph(*case)), some_points(case[0], case[2]))
    pairs = oracle.both_ways(kept(lists))
    groups = members(merged(lists, b, 1, Work()))
    assert all(len(group) <= b for group in groups)
    for i, one in enumerate(groups):
        for other in groups[:i]:
            assert len(one) + len(other) > b or not any((v, u) in pairs for v in one for u in other)


def test_clusters_become_pages() -> None:
    graph, points, of = clusters(12, 6)
    order = AgglomerativeOrder().fit(graph, points, 6, 1)
    assert [len(set(of[order[at : at + 6]])) for at in range(0, len(order), 6)] == [1] * 12


def test_floats_are_ordered_as_bytes_are() -> None:
    graph, points, of = clusters(12, 6)
    order = AgglomerativeOrder().fit(graph, points.astype(np.float32) * 1e-3 - 7, 6, 1)
    assert [len(set(of[order[at : at + 6]])) for at in range(0, len(order), 6)] == [1] * 12


def test_vertices_without_a_group_go_where_they_are_close() -> None:
    """Of two groups of three a page of four takes one, and a vertex of the other."""
    near = [[1, 2, 3, 4], [0, 2], [0, 1], [4, 5, 0], [3, 5, 0], [3, 4]]
    ids = np.array([row + [v] * (4 - len(row)) for v, row in enumerate(near)], np.uint32)
    found = np.where(ids == np.arange(6)[:, None], 0, 100).astype(np.uint8)
    found[0, 2:], found[3, 2], found[4, 2] = (1, 9), 1, 9
    lists = with_reverse(ids, found, np.empty(24, np.uint32), np.empty(24, np.uint8), 1)
    groups = merged(lists, 4, 1, Work())
    assert sorted(map(sorted, members(groups))) == [[0, 1, 2], [3, 4, 5]]
    assert packed(groups, lists, 4, 1).tolist() == [0, 1, 2, 4, 3, 5]


def test_copies_merge_in_few_rounds() -> None:
    """All scores are equal; each group would wait for the first one if pairs had no numbers."""
    n, degree = 20_000, 24
    rng = np.random.default_rng(5)
    graph = Adjacency(rng.integers(0, n, (n, degree)).astype(np.uint32), np.full(n, degree, np.int32))

    class Counted(Work):
        rounds = 0

        def spend(self, units: int) -> bool:
            self.rounds += 1
            return super().spend(units)

    work = Counted()
    groups = merged(near_lists(graph, np.zeros((n, 4), np.uint8), 24), 15, 2, work)
    assert work.rounds < 200
    assert np.count_nonzero(groups.sizes) < 1.3 * n / 15


def test_more_work_merges_more() -> None:
    graph, points, _ = clusters(200, 8)
    full = Work()
    AgglomerativeOrder().fit(graph, points, 8, 1, work=full)
    half = Work(full.spent // 2)
    order = AgglomerativeOrder().fit(graph, points, 8, 1, work=half)
    assert sorted(order.tolist()) == list(range(len(points)))
    assert half.spent < full.spent
    nothing = AgglomerativeOrder().fit(graph, points, 8, 1, work=Work(0))
    assert nothing.tolist() == list(range(len(points)))


def test_pages_are_closer_than_those_of_star_packing() -> None:
    points = some_points(3000, 3, 6)
    wide = points.astype(np.int32)
    distances = ((wide[:, None] - wide) ** 2).sum(axis=2)
    np.fill_diagonal(distances, 1 << 30)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :16].astype(np.uint32)
    graph = Adjacency(nearest, np.full(len(points), 16, np.int32))
    near = np.where(distances <= np.sort(distances, axis=1)[:, [15]], 1, 0)

    def pairs_on_pages(order: np.ndarray) -> int:
        return sum(int(near[np.ix_(page, page)].sum()) for page in order[:3000].reshape(-1, 10))

    ours = pairs_on_pages(AgglomerativeOrder().fit(graph, points, 10, 1))
    assert ours > 1.2 * pairs_on_pages(StarOrder().fit(graph, points, 10, 1))
