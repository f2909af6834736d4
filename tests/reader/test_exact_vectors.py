"""Graphs with nodes of codes and exact vectors apart: what a search reads at its end, and what it returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.brute_force import exact_neighbours
from tests.oracles.files.relaid import write_relaid
from tests.oracles.graph import exact as oracle
from tests.support.damage import check_unlisted, reseal
from tests.support.indexes.builds import assert_sound, build, clustered, far_away

from indexmill.formats.errors import CorruptFile
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.index.vectors import RowFormat, write_vectors
from indexmill.reader.index import Index

N, DIM, K, L = 4000, 40, 10, 120
POLICIES = ("pipeline", "page", "completion", "beam")


def points(metric: str, n: int = N, seed: int = 0) -> np.ndarray:
    vectors = clustered(n, DIM, seed=seed)
    return (
        vectors * np.random.default_rng(seed).uniform(0.5, 2, (n, 1)).astype(np.float32)
        if metric == "ip"
        else vectors
    )


def made(folder: Path, metric: str, keep: bool, **parameters: Any) -> Path:
    how = {"metric": metric, "node_dtype": "sq8", "keep_vectors": keep, "navigation": 0.0, **parameters}
    return build(folder / f"{metric}-{keep}", points(metric), **how)


@pytest.fixture(scope="module", params=["l2", "ip", "cosine"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    return request.param, made(folder, request.param, False), made(folder, request.param, True)


def distances(metric: str, vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Squared distances, or negative products, of float32 vectors in float64."""
    rows, q = vectors.astype(np.float64), query.astype(np.float64)
    if metric == "ip":
        return -(rows @ q)
    if metric == "cosine":
        rows, q = rows / np.linalg.norm(rows, axis=1, keepdims=True), q / np.linalg.norm(q)
    return ((rows - q) ** 2).sum(axis=1)


def of_scores(metric: str, scores: np.ndarray) -> np.ndarray:
    return {"l2": scores, "ip": -scores, "cosine": 2 - 2 * scores}[metric]


def test_nodes_are_those_of_an_index_without(pair: tuple[str, Path, Path]) -> None:
    _, plain, kept = pair
    assert_sound(kept)
    with IndexFiles(plain) as without, IndexFiles(kept) as files:
        assert without.vectors is None
        assert files.vectors is not None
        assert np.array_equal(without.graph.read_all().vectors, files.graph.read_all().vectors)
        assert np.array_equal(without.graph.read_all().neighbours, files.graph.read_all().neighbours)


def test_vectors_lie_in_slot_order_as_they_were_given(pair: tuple[str, Path, Path]) -> None:
    metric, _, kept = pair
    with IndexFiles(kept) as files:
        assert files.vectors is not None
        stored, given = files.vectors.read(0, N), points(metric)[files.vector_ids]
    if metric == "cosine":
        assert np.allclose(stored, given / np.linalg.norm(given, axis=1, keepdims=True), atol=1e-6)
    else:
        assert np.array_equal(stored[:, :DIM], given)


@pytest.mark.parametrize("policy", POLICIES)
def test_only_results_that_codes_cannot_tell_from_others_are_measured(
    pair: tuple[str, Path, Path], policy: str
) -> None:
    metric, plain, kept = pair
    if metric == "cosine":
        pytest.skip("a cosine is rounded, so distances by codes cannot be told to the bit")
    queries, how = points(metric, 60, seed=5), {"L": L, "policy": policy, "entry": "centroids"}
    coded = Index(plain).search(queries, oracle.kept(K, L), **how)
    found = Index(kept).search(queries, K, **how)
    with IndexFiles(kept) as files:
        assert files.vectors is not None
        scale, row = files.graph.scale(), files.vectors.row_format
        stored = files.vectors.read(0, N)
    assert scale is not None
    n_open = 0
    for i, query in enumerate(queries):
        slots, by_codes = coded.slots[i], of_scores(metric, coded.scores[i])
        exact = distances(metric, stored[slots][:, :DIM], query).astype(np.float32)
        interval = oracle.interval(scale[1][:DIM], query, metric)
        want, near, measured = oracle.answer(by_codes, exact, slots, K, interval)
        assert np.allclose(of_scores(metric, found.scores[i]), near, rtol=1e-5, atol=1e-5)
        assert set(found.slots[i]) == set(want)
        reads = len(np.unique(measured // row.rows_per_group)) * row.pages_per_row
        assert found.counters["pages_read"][i] == coded.counters["pages_read"][i] + reads
        assert found.counters["bytes_read"][i] == coded.counters["bytes_read"][i] + 4096 * reads
        assert found.counters["distances"][i] == coded.counters["distances"][i] + len(measured)
        assert found.counters["hops"][i] == coded.counters["hops"][i] + (reads > 0)
        n_open += len(measured)
    assert 0 < n_open < 20 * len(queries)


@pytest.fixture(scope="module", params=[1100, 2100])
def wide(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, Path]:
    """Vectors larger than a page, and an index that keeps them."""
    vectors = clustered(600, request.param)
    folder = tmp_path_factory.mktemp("wide")
    return vectors, build(folder / "ix", vectors, node_dtype="sq8", keep_vectors=True)


@pytest.mark.parametrize("policy", POLICIES)
def test_vectors_larger_than_a_page_are_read_beside_small_nodes(
    wide: tuple[np.ndarray, Path], policy: str
) -> None:
    vectors, index = wide
    nearest = [set(np.argsort(distances("l2", vectors, query), kind="stable")[:K]) for query in vectors[:8]]
    for engine in ("auto", "pread", "mmap"):
        found = Index(index, engine).search(vectors[:8], K, L=200, policy=policy, beam_width=2)
        assert list(map(set, found.vector_ids)) == nearest


def test_a_vector_is_within_the_smallest_radius_of_itself(tmp_path: Path) -> None:
    vectors = clustered(800, 128)
    index = Index(build(tmp_path / "ix", vectors, node_dtype="sq8", keep_vectors=True))
    for radius in (0.0, 1e-6):
        found = index.range_search(vectors[::9], radius)
        assert found.vector_ids.tolist() == list(range(0, 800, 9))
        assert np.all(found.scores <= radius)


def test_a_long_search_finds_what_codes_lose(pair: tuple[str, Path, Path]) -> None:
    metric, plain, kept = pair
    queries = points(metric, 200, seed=6)
    truth = [np.argsort(distances(metric, points(metric), query), kind="stable")[:K] for query in queries]

    def recall(index: Path) -> float:
        found = Index(index).search(queries, K, L=1000).vector_ids
        return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(found, truth, strict=True)]))

    assert recall(kept) >= 0.999
    assert recall(plain) < 0.99


def test_a_range_search_returns_what_lies_within(pair: tuple[str, Path, Path]) -> None:
    metric, _, kept = pair
    index, queries = Index(kept), points(metric, 20, seed=7)
    for query in queries:
        near = np.sort(distances(metric, points(metric), query))
        border = float(near[29:31].mean())
        radius = {"l2": border, "ip": -border, "cosine": 1 - border / 2}[metric]
        found = index.range_search(query, radius, L=1000)
        assert len(found.slots) == 30
        assert np.all(of_scores(metric, found.scores) <= border + 1e-5 * abs(border) + 1e-5)
    nothing = index.range_search(queries, {"l2": -1.0, "ip": 1e9, "cosine": 1.5}[metric])
    assert nothing.starts[-1] == 0


def test_answers_do_not_depend_on_engine_or_threads(pair: tuple[str, Path, Path]) -> None:
    metric, _, kept = pair
    queries = points(metric, 40, seed=8)
    first = Index(kept, "pread").search(queries, K, L=L)
    for engine, threads, inflight in (("auto", 1, 1), ("auto", 2, 7), ("mmap", 2, 3)):
        other = Index(kept, engine).search(queries, K, L=L, threads=threads, inflight=inflight)
        assert np.array_equal(first.slots, other.slots)
        assert np.array_equal(first.scores, other.scores)
        for name in ("pages_read", "distances", "hops"):
            assert np.array_equal(first.counters[name], other.counters[name])


def test_only_allowed_vectors_are_measured_and_returned(pair: tuple[str, Path, Path]) -> None:
    metric, _, kept = pair
    queries = points(metric, 30, seed=9)
    for share in (0.02, 0.6):
        allowed = np.random.default_rng(4).random(N) < share
        found = Index(kept).search(queries, K, L=1000, allow=allowed)
        assert allowed[found.vector_ids].all()
        ids = np.flatnonzero(allowed)
        hits = [
            len(set(row) & set(ids[np.argsort(distances(metric, points(metric)[ids], query))[:K]]))
            for row, query in zip(found.vector_ids, queries, strict=True)
        ]
        assert np.mean(hits) >= 0.99 * K


def test_a_view_answers_as_the_index_that_was_written_in_its_order(
    pair: tuple[str, Path, Path], tmp_path: Path
) -> None:
    metric, _, kept = pair
    order = np.random.default_rng(3).permutation(N)
    write_relaid(kept, tmp_path / "relaid", order)
    assert_sound(tmp_path / "relaid")
    queries = points(metric, 30, seed=10)
    view = Index(kept).remapped(order).search(queries, K, L=L)
    real = Index(tmp_path / "relaid").search(queries, K, L=L)
    assert np.array_equal(view.slots, real.slots)
    assert np.array_equal(view.scores, real.scores)
    assert np.array_equal(view.vector_ids, real.vector_ids)
    for name in ("pages_read", "bytes_read", "distances", "hops"):
        assert np.array_equal(view.counters[name], real.counters[name])


def test_one_vector_and_more_neighbours_than_vectors(tmp_path: Path) -> None:
    few = clustered(7, 5)
    index = build(tmp_path / "ix", few, node_dtype="sq8", keep_vectors=True)
    assert_sound(index)
    assert sorted(Index(index).search(few[0], 7).vector_ids[0]) == list(range(7))
    one = build(tmp_path / "one", few[:1], node_dtype="sq8", keep_vectors=True)
    assert Index(one).search(few[0], 1).vector_ids.tolist() == [[0]]


def test_equal_vectors_are_returned_by_slot(tmp_path: Path) -> None:
    vectors = np.repeat(clustered(300, 12), 4, axis=0)
    index = build(tmp_path / "ix", vectors, node_dtype="sq8", keep_vectors=True, R=16)
    found = Index(index).search(vectors[::40], K, L=200)
    assert np.all(np.diff(found.scores, axis=1) >= 0)
    for slots in found.slots:
        assert len(set(slots)) == K


def test_a_missing_or_damaged_file_is_an_error(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", clustered(500, 30), node_dtype="sq8", keep_vectors=True)
    path = index / "vectors.imx"
    sound = path.read_bytes()
    damaged = bytearray(sound)
    damaged[4096 + 100 :: 4096] = bytes(255 - byte for byte in damaged[4096 + 100 :: 4096])
    opened = Index(index)
    path.write_bytes(damaged[: len(sound) - 2 * 4096] + sound[-2 * 4096 :])
    with pytest.raises(CorruptFile, match=r"vectors\.imx: page \d+"):
        Index(index).search(clustered(200, 30, seed=3), K)
    path.write_bytes(sound)
    assert opened.search(clustered(5, 30, seed=3), K).ids.shape == (5, K)
    path.unlink()
    with pytest.raises(CorruptFile, match=r"vectors\.imx"):
        Index(index)


def test_an_index_that_lists_no_file_of_the_vectors_it_keeps_is_damage(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", clustered(500, 30), node_dtype="sq8", keep_vectors=True)
    check_unlisted(index, Index, IndexFiles)


@pytest.mark.parametrize(
    ("n", "dim", "dtype", "field"), [(499, 30, "float32", "n_vectors"), (500, 30, "uint8", "dtype")]
)
def test_vectors_of_another_index_are_damage(
    tmp_path: Path, n: int, dim: int, dtype: str, field: str
) -> None:
    index = build(tmp_path / "ix", clustered(500, 30), node_dtype="sq8", keep_vectors=True)
    write_vectors(index / "vectors.imx", RowFormat(dim, dtype), n, "l2", np.zeros((n, dim), dtype))
    reseal(index)
    with pytest.raises(CorruptFile, match=f"vectors.imx: field .{field}. in the header"):
        Index(index)
    with pytest.raises(CorruptFile, match=f"vectors.imx: field '{field}'"):
        IndexFiles(index)


# Queries beyond the range of the codes that nodes hold

FEW = 1200


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("node_dtype", ["sq8", "sq16"])
def test_nodes_of_codes_are_ranked_by_what_they_decode_to(
    tmp_path: Path, metric: str, node_dtype: str
) -> None:
    queries = far_away(clustered(60, DIM, seed=5))
    index = build(tmp_path / "ix", clustered(FEW, DIM), metric=metric, node_dtype=node_dtype)
    with IndexFiles(index) as files:
        scale = files.graph.scale()
        assert scale is not None
        rows = scale[0].astype(np.float64) + scale[1].astype(np.float64) * files.graph.read_all().vectors
    asked = queries.astype(np.float64)
    if metric == "cosine":
        asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    _, wanted = exact_neighbours(rows[:, :DIM], asked, K, "ip" if metric == "ip" else "l2")
    found = Index(index).search(queries, K, L=FEW)
    scores = 2 - 2 * found.scores if metric == "cosine" else found.scores
    np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_exact_vectors_apart_make_answers_exact(tmp_path: Path, metric: str) -> None:
    vectors, queries = clustered(FEW, DIM), far_away(clustered(60, DIM, seed=5))
    index = build(
        tmp_path / "ix", vectors, metric=metric, node_dtype="sq8", keep_vectors=True, navigation=0.0
    )
    wanted, _ = exact_neighbours(vectors, queries, K, metric)
    found = Index(index).search(queries, K, L=FEW)
    missed = [
        len(set(mine) - set(theirs))
        for mine, theirs in zip(found.vector_ids.tolist(), wanted.tolist(), strict=True)
    ]
    assert sum(missed) <= 2


def test_answers_are_exact_where_a_query_is_beyond_the_range_of_a_wide_component(tmp_path: Path) -> None:
    """By it vectors differ in their distance as much as by all others, and by little more than a step."""
    random = np.random.default_rng(1)
    vectors = random.uniform(size=(1500, 768)).astype(np.float32)
    vectors[:, 7] *= 10
    queries = random.uniform(size=(400, 768)).astype(np.float32)
    queries[:, 7] = random.uniform(50, 200, size=400)
    index = build(tmp_path / "ix", vectors, node_dtype="sq8", keep_vectors=True, navigation=0.0)
    wanted, _ = exact_neighbours(vectors, queries, K)
    found = Index(index).search(queries, K, L=len(vectors))
    missed = [
        len(set(mine) - set(theirs))
        for mine, theirs in zip(found.vector_ids.tolist(), wanted.tolist(), strict=True)
    ]
    assert sum(missed) == 0
