"""The partition builder: leaves, their lists, and the graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.graph import vamana as oracle

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.nearest.points import Points
from indexmill.builders.partition import choose
from indexmill.builders.partition.build import FANOUTS, build_partitioned, partitioned_bytes
from indexmill.builders.partition.carve import LEAF_MOST, carve, misses_of
from indexmill.builders.partition.leaf_lists import NOBODY, Misses, leaf_lists
from indexmill.builders.partition.links import sampled_vertices
from indexmill.builders.vamana.build import build_vamana
from indexmill.builders.vamana.graph import Graph, VamanaParameters
from indexmill.builders.vamana.greedy import search_rows
from indexmill.builders.vamana.prune import PruneRule
from indexmill.reader.threads import small_blocks

SMALL = VamanaParameters(max_degree=8, build_list_size=24, alpha=1.2)


def points(n: int, dim: int, dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "uint8":
        return rng.integers(0, 256, (n, dim), dtype=np.uint8)
    return rng.normal(size=(n, dim)).astype(np.float32)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_every_vector_is_in_leaves_and_in_none_twice(dtype: str) -> None:
    leaves = carve(points(6000, 9, dtype, 1), (4, 2), seed=1)
    sizes = np.diff(leaves.starts)
    assert sizes.max() <= LEAF_MOST
    assert sizes.min() >= 32  # 64 or more, before neighbours of two cells are counted once
    assert np.bincount(leaves.members, minlength=6000).min() >= 1
    assert 6 * 6000 < len(leaves.members) <= 8 * 6000
    for first, last in zip(leaves.starts[:-1], leaves.starts[1:], strict=True):
        assert (np.diff(leaves.members[first:last].astype(np.int64)) > 0).all()


def test_leaders_say_what_codes_miss_of_them() -> None:
    vectors = points(3000, 12, "float32", 1)
    leaders = Points(vectors[:200], coded_for=4)
    misses = misses_of(leaders)
    assert misses.leaders == 50 * 4
    assert 0 < misses.leaders_share < 0.1
    true = exact_neighbours(vectors[:200], vectors, 4)[0]
    missed = (leaders.nearest(vectors, 4)[:, :, None] != true[:, None, :]).all(axis=1).mean()
    assert missed == pytest.approx(misses.leaders_share, abs=0.05)
    assert misses_of(Points(points(200, 12, "uint8", 1), coded_for=4)) == Misses()
    leaves = carve(vectors, (4, 2), seed=1)
    assert leaves.misses.leaders > 100
    assert 0 < leaves.misses.leaders_share < 0.1


def test_leaders_whose_codes_miss_too_many_are_compared_by_floats() -> None:
    vectors = points(500, 6, "float32", 1) * np.float32(1e-3)
    vectors[:20] *= 1e3
    leaders = Points(vectors[:200], coded_for=4)
    assert misses_of(leaders) == Misses()
    assert (leaders.nearest(vectors, 4) == exact_neighbours(vectors[:200], vectors, 4)[0]).mean() > 0.99


def test_leaves_hold_near_vectors() -> None:
    vectors = points(5000, 4, "float32", 2)
    leaves = carve(vectors, (4, 2), seed=1)
    near = exact_neighbours(vectors, vectors[:100], 6)[0][:, 1:]
    together = [
        set(leaves.members[a:b].tolist()) for a, b in zip(leaves.starts[:-1], leaves.starts[1:], strict=True)
    ]
    met = [any(v in leaf and u in leaf for leaf in together) for v in range(100) for u in near[v].tolist()]
    assert np.mean(met) > 0.95


def lists_and_nearest(vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, Misses]:
    """Return squared distances of the lists of some leaves, of the true nearest, and what codes missed."""
    leaves = carve(vectors, (2, 2), seed=5)
    rows = np.random.default_rng(1).permutation(len(leaves.members)).astype(np.uint32)
    lists, misses = leaf_lists(vectors, leaves, k, rows, threads=2)
    got, expected = [], []
    for leaf in range(0, len(leaves.starts) - 1, 3):
        first, last = leaves.starts[leaf : leaf + 2]
        members = leaves.members[first:last]
        own = vectors[members].astype(np.float64)
        apart = ((own[:, None] - own[None]) ** 2).sum(axis=2)
        np.fill_diagonal(apart, np.inf)
        expected.append(np.sort(apart, axis=1)[:, :k])
        got.append(np.take_along_axis(apart, np.searchsorted(members, lists[rows[first:last]]), 1))
    return np.concatenate(got), np.concatenate(expected), misses


def test_lists_of_leaves_of_bytes_are_the_nearest_others() -> None:
    got, expected, misses = lists_and_nearest(points(1500, 11, "uint8", 3), 5)
    assert got == pytest.approx(expected)
    assert misses == Misses(0, 0)


@pytest.mark.parametrize("dim", [3, 11, 96])
def test_codes_miss_few_of_the_nearest_and_say_how_many(dim: int) -> None:
    got, expected, misses = lists_and_nearest(points(3000, dim, "float32", 3), 5)
    missed = (np.sort(got, axis=1)[:, -1] > expected[:, -1] * 1.0001).mean()
    assert 0 < missed < 0.2  # of the lists; a list has five places
    assert 0 <= misses.share < 0.1
    assert misses.looked_for == pytest.approx(5 * 4 * 3000 / 470, rel=0.5)


@pytest.mark.parametrize("scale", [1, 1e-41, 1e-22, 1e17])
def test_a_dense_blob_is_compared_by_distances(scale: float) -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(1000, 8)) * 1e-4
    vectors[rng.choice(1000, 60, replace=False)] *= 1e4
    vectors = (vectors * scale).astype(np.float32)
    got, expected, misses = lists_and_nearest(vectors, 5)
    if scale in (1, 1e17):  # else float32 holds no squares
        assert got == pytest.approx(expected, rel=1e-4)
    assert misses.missed == 0


def test_rows_of_float16_have_the_lists_of_the_same_rows_as_float32() -> None:
    halves = points(2500, 40, "float32", 7).astype(np.float16)
    leaves = carve(halves, (4, 2), seed=3)
    wide = carve(halves.astype(np.float32), (4, 2), seed=3)
    np.testing.assert_array_equal(leaves.members, wide.members)
    rows = np.arange(len(leaves.members), dtype=np.uint32)
    lists, misses = leaf_lists(halves, leaves, 6, rows)
    others, same = leaf_lists(halves.astype(np.float32), leaves, 6, rows)
    np.testing.assert_array_equal(lists, others)
    assert misses == same
    graphs = [build_partitioned(rows, 1, SMALL, seed=1) for rows in (halves, halves.astype(np.float32))]
    np.testing.assert_array_equal(graphs[0].neighbours, graphs[1].neighbours)


def test_a_leaf_of_few_leaves_places_empty() -> None:
    vectors = points(3, 5, "uint8", 1)
    lists, _ = leaf_lists(vectors, carve(vectors, (10, 2), seed=1), 4, np.arange(3, dtype=np.uint32))
    assert (lists[:, 2:] == NOBODY).all()
    assert sorted(lists[1, :2].tolist()) == [0, 2]


def test_lists_of_a_vertex_lie_together_in_the_order_of_first_leaves() -> None:
    members = np.array([2, 0, 2, 1, 0, 2], np.uint32)
    copies = choose.Copies(members, 3)
    assert copies.order.tolist() == [2, 0, 1]
    assert copies.rows.tolist() == [0, 3, 1, 5, 4, 2]
    some = choose.Copies(members, 5)  # of which two are in no leaf
    assert some.order.tolist() == [2, 0, 1]
    assert some.starts.tolist() == copies.starts.tolist() == [0, 3, 5, 6]


@pytest.mark.parametrize("degree", [3, 8])
def test_a_vertex_chooses_at_most_its_degree(degree: int) -> None:
    vectors, rule = points(1500, 11, "uint8", 6), PruneRule(1.2, saturate=False)
    leaves = carve(vectors, (4, 2), seed=1)
    copies = choose.Copies(leaves.members, len(vectors))
    found, _ = leaf_lists(vectors, leaves, 4, copies.rows)
    lists = choose.Lists.empty(1500, 16)
    assert sum(copies.choose_all(vectors, found.copy(), 12, degree, rule, lists, threads=2)) == 1500
    assert lists.degrees.max() == degree
    for at in range(0, 1500, 97):
        v = int(copies.order[at])
        met = set(found[copies.starts[at] : copies.starts[at + 1]].ravel().tolist()) - {NOBODY}
        nearest = sorted(met, key=lambda u: (oracle.squared(vectors, v, u), u))[:12]
        expected = oracle.robust_prune(vectors, v, nearest, degree, 1.2, saturate=False)
        assert set(lists.ids[at, : lists.degrees[at]].tolist()) == set(expected)


@pytest.mark.parametrize(("n", "dtype"), [(800, "uint8"), (4000, "uint8"), (4000, "float32")])
def test_a_graph_is_as_good_as_vamana(n: int, dtype: str) -> None:
    vectors, queries = points(n, 12, dtype, 3), points(100, 12, dtype, 4)
    p = VamanaParameters(24, 60, 1.2)
    truth, _ = exact_neighbours(vectors, queries, 10)
    recalls, distances = [], []
    for build in (build_vamana, build_partitioned):
        graph = build(vectors, 0, p, seed=1, threads=2)
        found = np.zeros((100, 10), np.uint32)
        distances.append(search_rows(queries, vectors, graph.neighbours, graph.degrees, 0, 40, found))
        recalls.append(
            np.mean([len(set(a) & set(b)) for a, b in zip(found.tolist(), truth.tolist(), strict=True)])
        )
    assert recalls[1] > recalls[0] - 0.1
    assert distances[1] < 1.1 * distances[0]


def check(graph: Graph, vectors: np.ndarray, max_degree: int) -> None:
    assert graph.neighbours.shape == (len(vectors), max_degree)
    assert graph.degrees.max() <= max_degree
    assert (graph.neighbours[np.arange(max_degree) >= graph.degrees[:, None]] == 0).all()
    for v in range(0, len(vectors), 7):
        row = graph.neighbours[v, : graph.degrees[v]].tolist()
        assert v not in row
        assert len(set(row)) == len(row)
        distances = [oracle.squared(vectors, v, u) for u in row]
        assert distances == pytest.approx(sorted(distances), rel=1e-5)
    assert oracle.reachable(graph.neighbours, graph.degrees, graph.entry) == set(range(len(vectors)))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_graph_obeys_its_limits(dtype: str) -> None:
    vectors = points(2500, 12, dtype, 1)
    check(build_partitioned(vectors, 5, SMALL, seed=1), vectors, 8)


@pytest.mark.parametrize("n", [1, 2, 5, 9, LEAF_MOST, LEAF_MOST + 1])
def test_any_number_of_vectors_makes_a_graph(n: int) -> None:
    vectors = points(n, 4, "float32", n)
    check(build_partitioned(vectors, n // 2, SMALL, seed=1), vectors, 8)


@pytest.mark.parametrize("distinct", [1, 2, 7])
def test_equal_vectors_by_the_thousand_end_in_a_connected_graph(distinct: int) -> None:
    vectors = np.repeat(points(distinct, 5, "uint8", 1), 4000 // distinct, axis=0)
    graph = build_partitioned(vectors, 0, SMALL, seed=1, threads=2)
    check(graph, vectors, 8)
    assert graph.edges_added == 0


def test_a_dense_blob_beside_far_vectors_and_constant_components() -> None:
    rng = np.random.default_rng(1)
    vectors = np.zeros((4000, 6), np.float32)
    vectors[:, :3] = rng.normal(size=(4000, 3)) * 1e-3
    vectors[:40, :3] *= 1e6
    check(build_partitioned(vectors, 0, SMALL, seed=1), vectors, 8)


def test_vectors_as_long_as_distances_can_hold_make_a_graph() -> None:
    vectors = points(1500, 6, "float32", 1)
    longest = np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1)).max()
    vectors *= np.float32(np.sqrt(np.finfo(np.float32).max / 4) / longest)
    check(build_partitioned(vectors, 0, SMALL, seed=1), vectors, 8)


@pytest.mark.parametrize(("n_clusters", "apart"), [(25, 10), (25, 100), (100, 30), (100, 100), (400, 100)])
def test_distant_clusters_are_found_from_one_vertex(n_clusters: int, apart: int) -> None:
    rng = np.random.default_rng(n_clusters)
    centres = apart * rng.normal(size=(n_clusters, 32))
    points = (centres[rng.integers(n_clusters, size=8200)] + rng.normal(size=(8200, 32))).astype(np.float32)
    vectors, queries = points[:8000], points[8000:]
    truth, _ = exact_neighbours(vectors, queries, 10)
    graph = build_partitioned(vectors, 0, VamanaParameters(32, 75, 1.2), seed=1, threads=2)
    found = np.zeros((200, 10), np.uint32)
    search_rows(queries, vectors, graph.neighbours, graph.degrees, 0, 75, found)
    hits = sum(len(set(a) & set(b)) for a, b in zip(found.tolist(), truth.tolist(), strict=True))
    assert hits / truth.size > 0.99  # 0.3 to 0.9 without links


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 300), degree=st.integers(2, 30), seed=st.integers(0, 99))
def test_sampled_vertices_reach_every_vertex(n: int, degree: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    neighbours = rng.integers(n, size=(n, degree)).astype(np.uint32)
    degrees = np.full(n, degree, np.int32)
    sampled = sampled_vertices(neighbours, degrees, np.zeros(n, bool), n - 1, seed)
    assert n - 1 in sampled
    assert (np.diff(sampled) > 0).all()
    assert len(sampled) <= n // 8 + 1
    others = sampled_vertices(neighbours, degrees, rng.random(n) < 0.5, n - 1, seed)
    assert len(sampled) >= n // 8 or set(others.tolist()) <= set(sampled.tolist())
    if len(sampled) < n // 8:  # not cut to the most
        reached = set().union(*(oracle.reachable(neighbours, degrees, int(v)) for v in sampled))
        assert reached == set(range(n))


def test_graph_is_the_same_for_any_number_of_threads() -> None:
    vectors = points(3000, 10, "float32", 2)
    with small_blocks(50):
        one, two = (build_partitioned(vectors, 3, SMALL, seed=5, threads=t) for t in (1, 3))
    np.testing.assert_array_equal(one.neighbours, two.neighbours)
    other = build_partitioned(vectors, 3, SMALL, seed=6)
    assert (one.neighbours != other.neighbours).any()


def test_fewer_leaders_make_fewer_copies_and_less_memory_and_a_whole_graph() -> None:
    vectors = points(6000, 12, "float32", 1)
    copies: list[int] = []
    for fanouts in (FANOUTS, (5, 2)):
        graph = build_partitioned(
            vectors, 5, SMALL, fanouts=fanouts, seed=1, threads=2, ended=lambda step, n: copies.append(n)
        )
        check(graph, vectors, 8)
    assert 0.5 < copies[-1] / copies[0] < 0.75  # 5 leaders of a vector, and 8 where 10 are too many
    least, usual = (partitioned_bytes(100_000, 48, 8, fanouts=fanouts) for fanouts in ((5, 2), FANOUTS))
    assert least < usual


def test_progress_counts_every_vertex_once() -> None:
    told: list[int] = []
    steps: list[str] = []
    build_partitioned(
        points(3001, 4, "uint8", 1),
        0,
        SMALL,
        seed=1,
        advance=told.append,
        ended=lambda step, _: steps.append(step),
    )
    assert sum(told) == 3001
    assert steps == ["carve", "compare", "choose"]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_vectors_that_many_equal_are_found_as_by_vamana(dtype: str) -> None:
    vectors, queries = np.repeat(points(300, 16, dtype, 1), 20, axis=0), points(100, 16, dtype, 2)
    p = VamanaParameters(32, 60, 1.2)
    nearest = np.sort(squared(queries, vectors), axis=1)[:, 9]
    recalls = []
    for build in (build_vamana, build_partitioned):
        graph = build(vectors, 0, p, seed=1, threads=2)
        found = np.zeros((100, 10), np.uint32)
        search_rows(queries, vectors, graph.neighbours, graph.degrees, 0, 50, found)
        there = ((vectors[found].astype(np.float64) - queries[:, None]) ** 2).sum(axis=2)
        recalls.append((there <= nearest[:, None] * 1.0001).mean())
    assert recalls[1] > 0.95
    assert recalls[1] >= recalls[0]


def squared(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return ((queries[:, None].astype(np.float64) - vectors[None]) ** 2).sum(axis=2)


@pytest.mark.parametrize("build", [build_vamana, build_partitioned])
def test_lists_that_are_not_saturated_are_shorter_and_cost_fewer_distances(
    build: Callable[..., Graph],
) -> None:
    vectors, queries = points(4000, 8, "uint8", 3), points(200, 8, "uint8", 4)
    truth, _ = exact_neighbours(vectors, queries, 10)
    degrees, distances = [], []
    for saturate in (True, False):
        graph = build(vectors, 0, VamanaParameters(32, 60, 1.2, saturate=saturate), seed=1, threads=2)
        found = np.zeros((200, 10), np.uint32)
        distances.append(search_rows(queries, vectors, graph.neighbours, graph.degrees, 0, 40, found))
        degrees.append(graph.degrees.mean())
        met = [len(set(a) & set(b)) for a, b in zip(found.tolist(), truth.tolist(), strict=True)]
        assert np.mean(met) > 9.5
    assert degrees[1] < 0.9 * degrees[0]
    assert distances[1] < 0.95 * distances[0]
