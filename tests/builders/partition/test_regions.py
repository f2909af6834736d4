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
from indexmill.builders.partition.edges import append_ends, edge_records, edges_both_ways
from indexmill.builders.partition.regions import Crossings, Regions, cells_of, in_halves, parts_of, regions_of
from indexmill.builders.partition.reservoirs import MET, Reservoirs, missing

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

    def needs(members: int, sizes: np.ndarray) -> int:
        return 3 * members + int(sizes.sum())

    found_cut = crossings.cut(needs, 1800)
    assert found_cut is not None
    bounds, members = found_cut
    assert len(members) > 2
    for (first, last), found in zip(itertools.pairwise(bounds), members, strict=True):
        inside = set(range(first, last))
        assert found == sum(bool(mine & inside) for mine in of_vector)
        assert needs(found, crossings.sizes[first:last]) <= 1800
    assert crossings.n_vectors == 900
    assert crossings.cut(needs, 300) is None


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


def records_of(candidates: dict[int, list[tuple[float, int]]]) -> tuple[np.ndarray, np.ndarray]:
    """Records as `met_records` makes them."""
    owners, payload = [], []
    for vertex, mine in candidates.items():
        mine = sorted(mine)
        for first in range(0, len(mine), MET):
            some = mine[first : first + MET]
            ids = [i for _, i in some] + [NOBODY] * (MET - len(some))
            bits = np.array([d for d, _ in some] + [0] * (MET - len(some)), np.float32).view(np.uint32)
            owners.append(vertex)
            payload.append([*ids, *bits.tolist()])
    return np.array(owners), np.array(payload, np.uint32)


def test_reservoirs_keep_the_nearest_distinct_whatever_the_order() -> None:
    rng = np.random.default_rng(2)
    distance = rng.integers(0, 40, (5, 200)).astype(float)  # ties
    met = [
        {
            v: [(distance[v, u], u) for u in rng.choice(200, rng.integers(1, 45), replace=False)]
            for v in range(5)
        }
        for _ in range(6)
    ]
    expected = {v: sorted({pair for some in met for pair in some[v]})[:50] for v in range(5)}
    for order in ([0, 1, 2, 3, 4, 5], [3, 5, 0, 4, 1, 2]):
        reservoirs = Reservoirs(5, 50)
        for i in order:
            reservoirs.add(*records_of(met[i]))
        for v in range(5):
            n = reservoirs.counts[v]
            got = zip(reservoirs.distances[v, :n].tolist(), reservoirs.ids[v, :n].tolist(), strict=True)
            assert list(got) == expected[v]


def test_edges_reach_both_of_their_ends() -> None:
    rng = np.random.default_rng(5)
    n, first = 60, 20
    places = rng.permutation(n).astype(np.uint32)
    ids = np.argsort(places).astype(np.uint32)[first:40]
    lists = np.array([rng.choice(np.setdiff1d(np.arange(n), v), 12, replace=False) for v in ids], np.uint32)
    degrees = rng.integers(1, 13, 20).astype(np.int32)
    edges = {(v, u) for v, row, d in zip(ids.tolist(), lists.tolist(), degrees, strict=True) for u in row[:d]}
    pairs = edges_both_ways(ids, first, lists, degrees, places)
    expected: dict[int, set[int]] = {}
    for v, u in edges:
        expected.setdefault(int(places[v]), set()).add(u)
        expected.setdefault(int(places[u]), set()).add(v)
    keys, payload = edge_records(pairs)
    counts, ends = np.zeros(n, np.int64), np.empty(payload.size, np.uint32)
    half = len(keys) // 2
    append_ends(keys[:half].astype(np.int64), payload[:half], ends, counts)
    append_ends(keys[half:].astype(np.int64), payload[half:], ends, counts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    for place in range(n):
        mine = ends[starts[place] : starts[place + 1]].tolist()
        assert len(mine) == len(set(mine))
        assert set(mine) == expected.get(place, set())


def test_what_is_not_at_hand_is_found_vertex_by_vertex() -> None:
    rows = np.array([0, NOBODY, 1, NOBODY, 2], np.uint32)
    ids = np.array([1, 2, 3, 0, 4, 4, 3, 1, 1], np.uint32)
    found, starts = missing(ids, np.array([0, 3, 6]), np.array([3, 5, 9]), rows)
    assert found.tolist() == [1, 3, 3, 1, 1]
    assert starts.tolist() == [0, 2, 2, 5]
