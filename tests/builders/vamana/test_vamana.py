"""The Vamana builder: claims about its prune, its graph and its search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.graph import vamana as oracle
from tests.support.processes.memory import peak_growth

from indexmill.builders.distances import comparable
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.vamana import build, insert
from indexmill.builders.vamana.build import build_vamana
from indexmill.builders.vamana.connect import NOBODY, connect_both_ways, connect_unreachable
from indexmill.builders.vamana.entries import entry_vertices
from indexmill.builders.vamana.graph import VamanaParameters
from indexmill.builders.vamana.greedy import search_rows
from indexmill.builders.vamana.insert import batch_sizes
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.builders.vamana.unite import unite_lists
from indexmill.pipeline.kinds.graph.shape import graph_bytes
from indexmill.reader.threads import small_blocks

SMALL = VamanaParameters(max_degree=8, build_list_size=24, alpha=1.2)


def points(n: int, dim: int, dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "uint8":
        return rng.integers(0, 256, (n, dim), dtype=np.uint8)
    return rng.normal(size=(n, dim)).astype(np.float32)


def prune(vectors: np.ndarray, v: int, candidates: list[int], max_degree: int, rule: PruneRule) -> list[int]:
    ids = np.array(candidates, np.uint32)
    distances = np.array([oracle.squared(vectors, v, c) for c in candidates], np.float32)
    n = sort_candidates(ids, distances, len(ids))
    out = np.zeros(max_degree, np.uint32)
    return out[: robust_prune(vectors, ids, distances, n, max_degree, rule, out)].tolist()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 40),
    st.integers(1, 20),
    st.sampled_from([1.0, 1.2, 1.5]),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_prune_agrees_with_the_oracle(
    n: int, max_degree: int, alpha: float, saturate: bool, seed: int
) -> None:
    vectors = points(n, 6, "uint8", seed)  # integers: no rounding between float32 and the oracle's float64
    candidates = np.random.default_rng(seed).integers(1, n, 2 * n).tolist()
    ours = prune(vectors, 0, candidates, max_degree, PruneRule(alpha, saturate))
    assert ours == oracle.robust_prune(vectors, 0, candidates, max_degree, np.float32(alpha), saturate)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_graph_obeys_its_limits(dtype: str) -> None:
    vectors = points(500, 12, dtype, 1)
    graph = build_vamana(vectors, 0, SMALL, seed=1)
    assert graph.neighbours.shape == (500, 8)
    assert graph.degrees.min() >= 1
    assert graph.degrees.max() <= 8
    for v in range(500):
        row = graph.neighbours[v, : graph.degrees[v]].tolist()
        assert v not in row
        assert len(set(row)) == len(row)
        distances = [oracle.squared(vectors, v, u) for u in row]
        assert distances == pytest.approx(sorted(distances), rel=1e-5)
    assert (graph.neighbours[np.arange(8) >= graph.degrees[:, None]] == 0).all()


def test_graph_is_the_same_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert, "MAX_BATCH_SHARE", 0.1)
    vectors = points(1500, 10, "float32", 2)
    with small_blocks(2):  # many blocks a batch, so that threads really take turns
        one, two = (build_vamana(vectors, 3, SMALL, seed=5, threads=t) for t in (1, 3))
    np.testing.assert_array_equal(one.neighbours, two.neighbours)
    np.testing.assert_array_equal(one.degrees, two.degrees)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_graph_is_that_of_the_same_vectors_in_a_wider_type(dtype: str) -> None:
    vectors = (points(400, 9, "float32", 3) * 20).astype(dtype)
    one, two = (build_vamana(rows, 3, SMALL, seed=5) for rows in (vectors, comparable(vectors)))
    np.testing.assert_array_equal(one.neighbours, two.neighbours)
    np.testing.assert_array_equal(one.degrees, two.degrees)
    lists = np.stack([one.neighbours, one.neighbours[one.neighbours[:, 0]]], axis=1).reshape(800, 8)
    vertices = np.repeat(np.arange(400, dtype=np.uint32), 2)
    united = [
        unite_lists(rows, vertices, lists, 0, 400, 8, PruneRule(1.2))
        for rows in (vectors, comparable(vectors))
    ]
    np.testing.assert_array_equal(united[0][0], united[1][0])


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int8"])
def test_entry_vertices_are_nearest_to_their_centroids_in_every_type(dtype: str) -> None:
    vectors = np.clip(points(500, 6, "float32", 7) * 30 + 128 * (dtype == "uint8"), -128, 255)
    vectors = np.clip(vectors, 0, 255).astype(dtype) if dtype == "uint8" else vectors.astype(dtype)
    rows = vectors.astype(np.float32)
    centroids = np.stack([rows[some].mean(axis=0) for some in np.split(np.arange(500), 10)])
    if dtype in ("uint8", "int8"):
        centroids = np.rint(centroids)
    graph = build_vamana(vectors, 0, SMALL, seed=1)
    found = rows[entry_vertices(vectors, graph, centroids)]
    nearest = ((rows[None] - centroids[:, None]) ** 2).sum(axis=2).min(axis=1)
    np.testing.assert_allclose(((found - centroids) ** 2).sum(axis=1), nearest, rtol=1e-2)


@pytest.mark.memory
def test_two_passes_over_float16_take_what_is_reserved_and_no_wider_copy() -> None:
    n, dim, degree = 12_000, 256, 16
    grown = peak_growth(
        f"""
        import numpy as np
        from indexmill.builders.vamana.build import build_vamana
        from indexmill.builders.vamana.graph import VamanaParameters
        vectors = np.random.default_rng(1).normal(size=({n}, {dim})).astype(np.float16)
        p = VamanaParameters({degree}, 12, 1.2, passes=2)
        build_vamana(vectors[:200], 0, p, seed=1, threads=2)
        """,
        "build_vamana(vectors, 0, p, seed=1, threads=2)",
    )
    reserved = graph_bytes(n, 2 * dim, degree)
    assert (
        0.5 * (reserved - n * 2 * dim) < grown < reserved - n * 2 * dim + (4 << 20)
    )  # work space of two threads


@pytest.mark.parametrize(("passes", "slacks"), [(1, [1.2]), (2, [1.0, 1.2])])
def test_only_the_last_pass_has_slack(
    monkeypatch: pytest.MonkeyPatch, passes: int, slacks: list[float]
) -> None:
    seen = []

    def insert_and_note(*given: Any, **options: Any) -> int:
        seen.append(given[5].alpha)
        return insert.insert_vertices(*given, **options)

    monkeypatch.setattr(build, "insert_vertices", insert_and_note)
    vectors, told = points(400, 6, "uint8", 4), []
    graph = build_vamana(vectors, 0, replace(SMALL, passes=passes), seed=1, advance=told.append)
    assert seen == slacks
    assert sum(told) == passes * 400
    assert oracle.reachable(graph.neighbours, graph.degrees, 0) == set(range(400))
    for v in range(400):
        row = graph.neighbours[v, : graph.degrees[v]].tolist()
        assert v not in row
        assert len(set(row)) == len(row) <= 8


def test_seed_changes_the_graph() -> None:
    vectors = points(300, 10, "float32", 2)
    one, two = (build_vamana(vectors, 3, SMALL, seed=s) for s in (1, 2))
    assert (one.neighbours != two.neighbours).any()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_search_finds_nearly_all_true_neighbours(dtype: str) -> None:
    vectors = points(3000, 12, dtype, 3)
    queries = points(100, 12, dtype, 4)
    graph = build_vamana(vectors, 0, VamanaParameters(24, 60, 1.2), seed=1, threads=2)
    truth, _ = exact_neighbours(vectors, queries, 10)
    found = np.zeros((100, 10), np.uint32)
    distances = search_rows(queries, vectors, graph.neighbours, graph.degrees, 0, 60, found)
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), truth.tolist(), strict=True)])
    assert recall > 0.97
    assert distances < 100 * 1500  # half of brute force at most


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_every_vertex_is_reachable_when_n_is_about_r(n: int) -> None:
    graph = build_vamana(points(n, 4, "float32", n), n // 2, SMALL, seed=1)
    assert oracle.reachable(graph.neighbours, graph.degrees, n // 2) == set(range(n))


@pytest.mark.parametrize("distinct", [1, 2, 7])
def test_every_vertex_is_reachable_among_duplicates(distinct: int) -> None:
    vectors = np.repeat(points(distinct, 5, "uint8", 1), 400, axis=0)
    graph = build_vamana(vectors, 0, SMALL, seed=1)
    assert oracle.reachable(graph.neighbours, graph.degrees, 0) == set(range(len(vectors)))
    assert graph.degrees.max() <= 8


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 50), st.integers(1, 4), st.integers(0, 2**31))
def test_connect_reaches_all_and_keeps_what_was_reachable(n: int, r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = points(n, 3, "float32", seed)
    neighbours = np.zeros((n, r), np.uint32)
    degrees = rng.integers(0, r + 1, n).astype(np.int32)
    for v in range(n):
        others = rng.permutation(np.delete(np.arange(n), v))[: degrees[v]]
        degrees[v] = len(others)
        neighbours[v, : len(others)] = others
    connect_unreachable(vectors, neighbours, degrees, 0, 16)
    assert oracle.reachable(neighbours, degrees, 0) == set(range(n))
    assert degrees.max() <= r
    for v in range(n):
        assert len(set(neighbours[v, : degrees[v]].tolist())) == degrees[v]


def drawn_graph(n: int, r: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors, and lists of any lengths in order, in which duplicates of vectors occur."""
    rng = np.random.default_rng(seed)
    vectors = points(n, 2, "uint8", seed) // 40
    neighbours, degrees = np.zeros((n, r), np.uint32), rng.integers(0, r + 1, n).astype(np.int32)
    for v in range(n):
        others = rng.permutation(np.delete(np.arange(n), v))[: degrees[v]].tolist()
        degrees[v] = len(others)
        neighbours[v, : len(others)] = sorted(others, key=lambda u, v=v: (oracle.squared(vectors, v, u), u))
    return vectors, neighbours, degrees


def edges_of(neighbours: np.ndarray, degrees: np.ndarray) -> set[tuple[int, int]]:
    return {(v, u) for v, degree in enumerate(degrees) for u in neighbours[v, :degree].tolist()}


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(1, 4), st.integers(0, 2**31))
def test_connect_both_ways_leads_from_all_to_all_by_the_edges_that_it_names(
    n: int, r: int, seed: int
) -> None:
    vectors, neighbours, degrees = drawn_graph(n, r, seed)
    entry = seed % n
    connect_unreachable(vectors, neighbours, degrees, entry, 16)
    kept = connect_both_ways(vectors, neighbours, degrees, entry, 16)
    assert degrees.max() <= r
    edges = edges_of(neighbours, degrees)
    assert len(edges) == degrees.sum()
    down = {(int(w), v) for v, w in enumerate(kept[0]) if v != entry}
    up = {(v, int(w)) for v, w in enumerate(kept[1]) if v != entry}
    assert down | up <= edges
    assert (kept[:, entry] == NOBODY).all()
    for tree in (down, {(w, v) for v, w in up}):  # both span all, from the entry
        reached, grown = {entry}, True
        while grown:
            fresh = {u for v, u in tree if v in reached} - reached
            reached, grown = reached | fresh, bool(fresh)
        assert reached == set(range(n))


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 40), st.integers(2, 5), st.integers(0, 2**31))
def test_connect_replaces_no_edge_that_is_to_stay(n: int, r: int, seed: int) -> None:
    vectors, neighbours, degrees = drawn_graph(n, r, seed)
    kept = np.full((2, n), NOBODY, np.uint32)
    for v in range(n):  # all but the first neighbour of a list
        row = neighbours[v, 1 : degrees[v]]
        kept[0, row] = v
        if len(row):
            kept[1, v] = row[-1]
    stay = {(int(w), v) for v, w in enumerate(kept[0]) if w != NOBODY}
    stay |= {(v, int(w)) for v, w in enumerate(kept[1]) if w != NOBODY}
    connect_unreachable(vectors, neighbours, degrees, 0, 16, kept=kept)
    assert stay <= edges_of(neighbours, degrees)
    assert oracle.reachable(neighbours, degrees, 0) == set(range(n))
    assert degrees.max() <= r


@given(st.integers(1, 5000), st.integers(0, 5000))
def test_batches_add_up_and_never_outgrow_what_is_there(n: int, present: int) -> None:
    done = min(n, present)
    sizes = batch_sizes(n, done)
    assert done + sum(sizes) == n
    for size in sizes:
        assert size <= max(done, 1)
        done += size


def test_int8_and_float16_keep_their_distances() -> None:
    rng = np.random.default_rng(0)
    signed = rng.integers(-128, 128, (20, 7), dtype=np.int8)
    assert oracle.squared(comparable(signed), 3, 9) == oracle.squared(signed, 3, 9)
    half = rng.normal(size=(20, 7)).astype(np.float16)
    assert oracle.squared(comparable(half), 3, 9) == oracle.squared(half, 3, 9)


def test_united_lists_are_pruned_unions_in_order_of_distance() -> None:
    vectors = points(60, 5, "uint8", 8)
    rng = np.random.default_rng(1)
    vertices = np.array([10, 10, 11, 13, 13], np.uint32)
    lists = rng.integers(0, 60, (5, 8)).astype(np.uint32)
    lists[2] = [4, 7, 50, 3, 11, 11, 11, 11]  # the only list of vertex 11, padded with itself
    neighbours, degrees = unite_lists(vectors, vertices, lists, 10, 14, 8, PruneRule(1.2))
    for i, v in ((0, 10), (3, 13)):
        union = [u for row in lists[vertices == v].tolist() for u in row]
        chosen = oracle.robust_prune(vectors, v, union, 8, np.float32(1.2))
        in_order = sorted(chosen, key=lambda u, v=v: (oracle.squared(vectors, v, u), u))
        assert neighbours[i, : degrees[i]].tolist() == in_order
    assert neighbours[1].tolist() == [4, 7, 50, 3, 0, 0, 0, 0]
    assert degrees.tolist()[1:3] == [4, 0]  # vertex 12 owns no list
