"""Agglomerative pages: lists and groups are those of the oracle, and pages hold what is near."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import DTypeLike
from tests.oracles.layout import agglomerative as oracle
from tests.support.indexes.layout import as_lists, clusters, random_graph

from indexmill.layout.agglomerative.merging import Groups, merged
from indexmill.layout.agglomerative.near import Near, find_near
from indexmill.layout.agglomerative.order import AgglomerativeOrder
from indexmill.layout.agglomerative.packing import packed
from indexmill.layout.agglomerative.pairs import MOST, NOBODY, Pairs, both_ways
from indexmill.layout.agglomerative.tally import new_tally, sum_up
from indexmill.layout.order import Adjacency, Given, InputShape, Work, in_memory
from indexmill.layout.star import StarOrder
from indexmill.reader.threads import small_blocks

KEEP = 5
graphs = st.tuples(st.integers(1, 40), st.integers(1, 10), st.integers(0, 2**31))


def some_points(n: int, seed: int, dim: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, dim), np.uint8)


def near_lists(graph: Adjacency, points: np.ndarray, keep: int = KEEP) -> Near:
    n = len(points)
    near = Near(np.empty((n, keep), np.uint32), np.empty((n, keep), np.uint8))
    find_near(graph, points, near, 1, Work())
    return near


def pairs_of(near: Near, threads: int = 1) -> AbstractContextManager[Pairs]:
    nothing = Adjacency(np.empty((0, 0), np.uint32), np.empty(0, np.int32))
    return both_ways(near, Given(nothing, None, 1, 0, threads, Work(), in_memory))


def groups_of(near: Near, b: int, threads: int = 1, work: Work | None = None) -> Groups:
    with pairs_of(near, threads) as pairs:
        return merged(pairs, b, threads, work or Work())


def kept(near: Near) -> dict[tuple[int, int], int]:
    return {
        (v, int(u)): int(c)
        for v, row in enumerate(zip(*near, strict=True))
        for u, c in zip(*row, strict=True)
        if c > 0
    }


def listed(pairs: Pairs) -> dict[tuple[int, int], int]:
    found = [
        ((v, int(pairs.others[at])), int(pairs.closeness[at]))
        for v, head in enumerate(pairs.heads[:-1])
        for at in range(head["start"], head["start"] + head["length"])
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def summed(entries: list[tuple[int, int]]) -> dict[int, int]:
    most = len(entries) + 1
    numbers, amounts = np.zeros(most, np.uint32), np.zeros(most, np.int32)
    for i, (number, amount) in enumerate(entries):
        numbers[i], amounts[i] = number, amount
    found, totals = np.empty(most, np.uint32), np.empty(most, np.int32)
    n = sum_up(numbers, amounts, len(entries), *new_tally(most), found, totals)
    return dict(zip(found[:n].tolist(), totals[:n].tolist(), strict=True))


def members(groups: Groups) -> list[set[int]]:
    """The vertices of every group, by walking it."""
    found = []
    for name in np.flatnonzero(groups.sizes):
        group, v = [], name
        while v != NOBODY:
            group.append(int(v))
            v = groups.following[v]
        assert len(group) == groups.sizes[name]
        assert len({*groups.of[group]} - {name, NOBODY}) == 0
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
def test_pairs_stand_in_both_lists(case: tuple[int, int, int]) -> None:
    near = near_lists(Adjacency(*random_graph(*case)), some_points(case[0], case[2]))
    for threads in (1, 3):
        with pairs_of(near, threads) as pairs:
            assert listed(pairs) == oracle.both_ways(kept(near))


def test_a_list_that_is_too_long_keeps_its_own_and_the_first_others() -> None:
    n = 2 * MOST
    ids = np.zeros((n, 2), np.uint32)  # all are near to the first two vertices
    ids[:, 1] = 1
    ids[:2] = [[1, 5], [0, 5]]
    with pairs_of(Near(ids, np.full((n, 2), 9, np.uint8))) as pairs:
        assert pairs.heads["length"][:2].tolist() == [MOST, MOST]
        assert pairs.others[:MOST].tolist() == [1, 5, *range(2, 5), *range(6, MOST + 1)]
        assert pairs.closeness[:3].tolist() == [18, 18, 9]


@settings(max_examples=60, deadline=None)
@given(graphs, st.integers(2, 9), st.sampled_from([2, 16, 255]))
def test_groups_are_those_of_the_oracle(case: tuple[int, int, int], b: int, distinct: int) -> None:
    """Also of points with many copies, whose closeness is equal."""
    graph, points = Adjacency(*random_graph(*case)), some_points(case[0], case[2]) % distinct
    near = near_lists(graph, points)
    expected = oracle.merged(oracle.both_ways(kept(near)), case[0], b)
    found = members(groups_of(near, b))
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))


@settings(max_examples=40, deadline=None)
@given(graphs, st.integers(2, 9))
def test_order_and_work_do_not_depend_on_threads(case: tuple[int, int, int], b: int) -> None:
    graph, points = Adjacency(*random_graph(*case)), some_points(case[0], case[2]) % 16
    alone, together = Work(), Work()
    expected = AgglomerativeOrder().fit(graph, points, b, 1, work=alone)
    with small_blocks(3):
        order = AgglomerativeOrder().fit(graph, points, b, 1, threads=3, work=together)
    assert order.tolist() == expected.tolist()
    assert together.spent == alone.spent


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**32 - 1) | st.integers(0, 9), st.integers(0, 255)), max_size=200))
def test_sums_by_number_stand_in_the_order_of_first_entries(entries: list[tuple[int, int]]) -> None:
    expected: dict[int, int] = {}
    for number, amount in entries:
        expected[number] = expected.get(number, 0) + amount
    assert list(summed(entries).items()) == list(expected.items())


def test_numbers_that_share_a_place_have_sums_of_their_own() -> None:
    numbers = [number for number in range(1, 200_000) if number * 2654435761 >> 16 & 1023 == 7][:60]
    assert len(numbers) == 60
    entries = [(number, i) for i in range(2) for number in numbers]
    assert summed(entries) == {number: 1 for number in numbers}


@settings(max_examples=40, deadline=None)
@given(graphs, st.integers(2, 9))
def test_no_two_groups_that_are_near_fit_a_page(case: tuple[int, int, int], b: int) -> None:
    near = near_lists(Adjacency(*random_graph(*case)), some_points(case[0], case[2]))
    pairs = oracle.both_ways(kept(near))
    groups = members(groups_of(near, b))
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
    groups = groups_of(Near(ids, found), 4)
    assert sorted(map(sorted, members(groups))) == [[0, 1, 2], [3, 4, 5]]
    assert packed(groups, Near(ids, found), 4, 1).tolist() == [0, 1, 2, 4, 3, 5]


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
    groups = groups_of(near_lists(graph, np.zeros((n, 4), np.uint8), 24), 15, 2, work)
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


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_scratch_space_is_no_more_than_foretold(dtype: type) -> None:
    graph, points, _ = clusters(200, 8)
    held, most = 0, 0

    @contextmanager
    def counted(kind: DTypeLike, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
        nonlocal held, most
        array = np.empty(shape, kind)
        held += array.nbytes
        most = max(most, held)
        yield array
        held -= array.nbytes

    order = AgglomerativeOrder()
    order.fit(graph, points.astype(dtype), 8, 1, scratch=counted)
    shape = InputShape(*graph.neighbours.shape, points.shape[1], dtype)
    assert 0.2 * order.scratch_bytes(shape) < most <= order.scratch_bytes(shape)
    assert held == 0
