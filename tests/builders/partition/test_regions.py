"""Regions, and the records that travel between them: the graph equals that of all vectors in one piece."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from indexmill.builders.nearest.points import Points
from indexmill.builders.partition.carve import (
    carve,
    carve_cells,
    first_leaders,
    grouped,
    joined,
)
from indexmill.builders.partition.received import Received, choose_lists, missing, unite_lists
from indexmill.builders.partition.records import (
    MET,
    append_ids,
    edge_records,
    edges_both_ways,
    met_records,
)
from indexmill.builders.partition.regions import Crossings, Regions, cells_of, in_halves, parts_of, regions_of
from indexmill.builders.vamana.prune import PruneRule

NOBODY = 0xFFFFFFFF


def labels_of(n: int, n_leaders: int, fanout: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    near = rng.integers(0, n_leaders, n)[:, None] + np.arange(fanout) * rng.choice([1, 3], (n, 1))
    return (near % n_leaders).astype(np.uint16)


def test_an_order_in_halves_keeps_clusters_together() -> None:
    rng = np.random.default_rng(1)
    cluster = rng.integers(0, 4, 40)
    points = (rng.normal(size=(4, 8)) * 20)[cluster] + rng.normal(size=(40, 8))
    order = in_halves(points.astype(np.float32))
    assert sorted(order.tolist()) == list(range(40))
    changes = np.count_nonzero(np.diff(cluster[order]))
    assert changes < 12  # 30 at random
    assert in_halves(np.ones((9, 3), np.float32)).tolist() == list(range(9))


def test_runs_of_cells_fit_and_hold_every_vector_once() -> None:
    labels = labels_of(900, 30, 4)
    cells = np.array([0, 0, *range(1, 29)], np.int32)  # two leaders share a cell
    crossings = Crossings(cells, 29)
    for first in range(0, 900, 250):
        crossings.add(labels[first : first + 250])
    of_vector = [set(row) for row in cells[labels].tolist()]
    assert crossings.sizes.tolist() == [sum(c in mine for mine in of_vector) for c in range(29)]

    def needs(members: int, first: int, last: int) -> int:
        return 3 * members + int(crossings.sizes[first:last].sum())

    found_cut = crossings.cut(needs, 1800)
    assert found_cut is not None
    bounds, members = found_cut
    assert len(members) > 2
    for (first, last), found in zip(itertools.pairwise(bounds), members, strict=True):
        inside = set(range(first, last))
        assert found == sum(bool(mine & inside) for mine in of_vector)
        assert needs(found, first, last) <= 1800
    assert crossings.n_vectors == 900
    assert crossings.cut(needs, 300) is None
    sizes = crossings.sizes
    crossings.grow(7)
    assert np.array_equal(crossings.sizes, 7 * sizes)
    assert crossings.cut(needs, 7 * 1800) == (bounds, [7 * one for one in members])


def test_parts_lie_within_regions_and_are_small() -> None:
    places, homes = parts_of(np.array([5, 0, 12, 3]), 5)
    assert places.tolist() == [0, 5, 9, 13, 17, 20]
    assert homes.tolist() == [0, 2, 2, 2, 3]


def test_regions_and_cells_of_vectors_are_those_of_their_leaders() -> None:
    labels = labels_of(300, 12, 3)
    plan = Regions(
        np.array([0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9], np.int32), np.repeat([0, 1, 0, 2], 3).astype(np.int32),
        np.zeros(3, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64), 6, np.zeros(2, np.int64),
    )  # fmt: skip
    regions, rows = regions_of(labels, plan.regions)
    pairs = {(r, i) for i, row in enumerate(labels.tolist()) for r in plan.regions[row].tolist()}
    assert len(pairs) == len(rows)
    assert set(zip(regions.tolist(), rows.tolist(), strict=True)) == pairs
    cells, numbers = cells_of(labels, plan, 0)
    assert numbers == [0, 1, 4, 5, 6]
    for cell, number in zip(cells, numbers, strict=True):
        leaders = np.flatnonzero((plan.cells == number) & (plan.regions == 0))
        assert cell.tolist() == np.flatnonzero(np.isin(labels, leaders).any(axis=1)).tolist()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_cells_carved_apart_have_the_leaves_of_all(dtype: str) -> None:
    vectors = np.random.default_rng(3).integers(0, 255, (5000, 9)).astype(dtype)
    rows, fanout = first_leaders(5000, (6, 2), seed=4)
    labels = Points(vectors[rows], coded_for=fanout).nearest(vectors, fanout)
    members, starts = grouped(labels, len(rows))
    found = set()
    for number, (first, last) in enumerate(itertools.pairwise(joined(starts))):
        cell = np.unique(members[starts[first] : starts[last]])
        own = carve_cells(
            vectors[cell], [np.arange(len(cell), dtype=np.uint32)], [number], 5000, (6, 2), seed=4
        )
        found |= {tuple(cell[leaf].tolist()) for leaf in np.split(own.members, own.starts[1:-1])}
    whole = carve(vectors, (6, 2), seed=4)
    assert found == {tuple(leaf.tolist()) for leaf in np.split(whole.members, whole.starts[1:-1])}


def test_records_name_those_that_a_vertex_met_in_any_leaf_once() -> None:
    rng = np.random.default_rng(2)
    names = (3 * np.arange(90)).astype(np.uint32)
    lists = rng.integers(0, 90, (60, 7)).astype(np.uint32)
    lists[::4, 3:] = NOBODY
    lists[8:10] = NOBODY  # a vertex alone in its leaves
    ends = np.array([3, 8, 10, 40, 60])
    firsts = np.append(0, ends[:-1])
    owners, payload = met_records(firsts, ends, lists, names)
    assert (np.diff(owners) >= 0).all()
    counts, ids = np.zeros(5, np.int64), np.empty(payload.size, np.uint32)
    append_ids(owners, payload, ids, counts)
    for i, (first, last) in enumerate(zip(firsts, ends, strict=True)):
        mine = ids[counts[:i].sum() : counts[: i + 1].sum()].tolist()
        assert len(mine) == len(set(mine))
        assert set(mine) == {3 * row for row in lists[first:last].ravel().tolist() if row != NOBODY}
        assert np.count_nonzero(owners == i) == -(-len(mine) // MET)


def received(rng: np.random.Generator, n: int, vertices: np.ndarray) -> Received:
    """What some of `n` vertices received: others, some of them twice, in any order."""
    ids = [rng.choice(np.setdiff1d(np.arange(n), v), rng.integers(0, 70)) for v in vertices]
    starts = np.cumsum([0, *map(len, ids)])
    return Received(vertices.astype(np.uint32), np.concatenate(ids).astype(np.uint32), starts)


def test_lists_are_chosen_from_the_nearest_whatever_was_received_twice_and_wherever_rows_lie() -> None:
    rng = np.random.default_rng(2)
    n, degree, candidates = 200, 8, 24
    vectors = rng.integers(0, 4, (n, 6)).astype(np.float32)  # many are equally far
    rows = rng.permutation(n).astype(np.uint32)
    names = np.argsort(rows).astype(np.uint32)
    vertices = np.arange(0, n, 9)
    met = received(rng, n, vertices)
    chosen = []
    for rule in (PruneRule(1.2), PruneRule(1.2, saturate=False)):
        lists, degrees = np.zeros((len(vertices), degree), np.uint32), np.zeros(len(vertices), np.int32)
        choose_lists(vectors[names], rows, names, met, candidates, rule, lists, degrees)
        united = np.zeros((len(vertices), degree), np.uint32)
        unite_lists(vectors[names], rows, names, met, rule, united)
        for i, v in enumerate(vertices.tolist()):
            others = np.unique(met.ids[met.starts[i] : met.starts[i + 1]])
            distance = ((vectors[others] - vectors[v]) ** 2).sum(axis=1)
            nearest = others[np.lexsort((others, distance))]
            mine = lists[i, : degrees[i]].tolist()
            assert len(mine) == len(set(mine))
            assert set(mine) <= set(nearest[:candidates].tolist())
            assert mine[:1] == nearest[:1].tolist()
            if rule.saturate:
                assert len(mine) == min(degree, len(nearest))
            got = united[i].tolist()
            if len(nearest) <= degree:
                assert got == [*nearest.tolist(), *[v] * (degree - len(nearest))]
            else:
                own = [u for u in got if u != v]
                assert own == [u for u in nearest.tolist() if u in own]
        chosen.append(lists)
        again, counts = np.zeros_like(lists), np.zeros_like(degrees)
        shuffled = met._replace(ids=met.ids.copy())
        for first, last in itertools.pairwise(met.starts.tolist()):
            rng.shuffle(shuffled.ids[first:last])
        choose_lists(
            vectors, *(np.arange(n, dtype=np.uint32),) * 2, shuffled, candidates, rule, again, counts
        )
        assert np.array_equal(again, lists)
        assert np.array_equal(counts, degrees)
    assert not np.array_equal(*chosen)


def test_edges_reach_both_of_their_ends() -> None:
    rng = np.random.default_rng(5)
    n, first = 2500, 1010
    places = rng.permutation(n).astype(np.uint32)
    ids = np.argsort(places).astype(np.uint32)[first : first + 40]
    lists = np.array(
        [rng.choice(np.setdiff1d(np.append(ids, rng.choice(n, 30)), v), 20, replace=False) for v in ids],
        np.uint32,
    )
    degrees = rng.integers(1, 21, 40).astype(np.int32)
    edges = {(v, u) for v, row, d in zip(ids.tolist(), lists.tolist(), degrees, strict=True) for u in row[:d]}
    assert any((u, v) in edges for v, u in edges)
    pairs, starts = edges_both_ways(ids, first, lists, degrees, places)
    expected: dict[int, set[int]] = {}
    for v, u in edges:
        expected.setdefault(int(places[v]), set()).add(u)
        expected.setdefault(int(places[u]), set()).add(v)
    counts, ends = np.zeros(n, np.int64), np.empty(len(pairs), np.uint32)
    assert np.count_nonzero(np.diff(starts)) == 3
    last = -1
    for low, high in itertools.pairwise(starts.tolist()):
        keys, payload = edge_records(pairs[low:high])
        assert (np.diff(keys.astype(np.int64), prepend=last) >= 0).all()
        last = int(keys[-1])
        append_ids(keys.astype(np.int64), payload, ends, counts)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    for place in range(n):
        mine = ends[bounds[place] : bounds[place + 1]].tolist()
        assert len(mine) == len(set(mine))
        assert set(mine) == expected.get(place, set())


def test_what_is_not_at_hand_is_found_vertex_by_vertex() -> None:
    rows = np.array([0, NOBODY, 1, NOBODY, 2], np.uint32)
    ids = np.array([1, 2, 3, 0, 4, 4, 3, 1, 1], np.uint32)
    found, starts = missing(Received(np.arange(3, dtype=np.uint32), ids, np.array([0, 3, 5, 9])), rows)
    assert found.tolist() == [1, 3, 3, 1, 1]
    assert starts.tolist() == [0, 2, 2, 5]
