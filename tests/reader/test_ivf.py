"""Indexes of kind ``ivf`` in the native reader: against brute force, faiss and the join, from Python and the shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles import ivf as oracle
from tests.oracles.brute_force import exact_neighbours
from tests.oracles.files.lists import read_list
from tests.oracles.files.verify import verify_index
from tests.support.cli import run, run_json
from tests.support.damage import check_unlisted, reseal
from tests.support.indexes.builds import far_away
from tests.support.indexes.built import Built
from tests.support.indexes.ivf import DIM, LISTS, N, build_lists, join, make_vectors, result

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile, IndexmillError, InputError, OtherKind
from indexmill.formats.index.vectors import RowFormat, write_vectors
from indexmill.formats.ivf.index import IvfFiles
from indexmill.reader import _native
from indexmill.reader.index import Index
from indexmill.reader.ivf import IvfIndex

QUERIES, K = 60, 10
#: Rows of a list that takes several reads of rows and of ids.
LONG = 70_000


@pytest.fixture(scope="module")
def indexes(built: Built) -> dict[str, Path]:
    return {
        dtype: built(build_lists, make_vectors(dtype)) for dtype in ("uint8", "int8", "float32", "float16")
    }


def queries_of(dtype: str) -> Any:
    return make_vectors(dtype, QUERIES, seed=9)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float32", "float16"])
def test_a_search_finds_what_brute_force_finds_in_the_same_lists(
    indexes: dict[str, Path], dtype: str
) -> None:
    index = indexmill.open(indexes[dtype])
    assert isinstance(index, IvfIndex)
    centroids = IvfFiles(indexes[dtype]).centroids.centroids
    for nprobe in (1, 5, LISTS):
        found = index.search(queries_of(dtype), K, nprobe=nprobe)
        wanted, distances = oracle.search(make_vectors(dtype), queries_of(dtype), centroids, nprobe, K)
        far = np.isinf(distances)
        assert np.array_equal(found.vector_ids < 0, far)
        np.testing.assert_allclose(found.scores, np.where(far, np.nan, distances), rtol=1e-5)
        differ = found.vector_ids != np.where(far, -1, wanted)
        if dtype in ("uint8", "int8"):
            assert not differ.any()  # exact, ties by id
        else:
            assert differ.mean() < 0.005  # rounding among nearly equal distances
        assert (found.counters["distances"] <= N).all()
        assert found.counters["lists"].max() <= 3 * nprobe  # of three batches


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("nprobe", [1, 4])
def test_faiss_finds_the_same_with_the_same_centroids(tmp_path: Path, dtype: str, nprobe: int) -> None:
    vectors, queries = make_vectors(dtype, 6000, seed=5), make_vectors(dtype, 200, seed=6)
    path = build_lists(tmp_path / "ix", vectors, lists=64, batch_vectors=2500)
    faiss.omp_set_num_threads(1)
    coarse = faiss.IndexFlatL2(DIM)
    coarse.add(IvfFiles(path).centroids.centroids.copy())
    index = faiss.IndexIVFFlat(coarse, DIM, 64)
    index.is_trained, index.nprobe = True, nprobe
    index.add(vectors.astype(np.float32))
    distances, theirs = index.search(queries.astype(np.float32), 10)
    found = IvfIndex(path).search(queries, 10, nprobe=nprobe)
    same = found.vector_ids == theirs
    assert same.mean() > 0.98
    assert np.allclose(found.scores[~same], distances[~same], rtol=1e-6)  # only among equal distances


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("codec", ["flat", "sq8", "pq", "rabitq"])
def test_every_codec_and_metric_ranks_as_the_join_does(tmp_path: Path, metric: str, codec: str) -> None:
    vectors, queries = make_vectors("float32", 900), queries_of("float32")
    path = build_lists(
        tmp_path / "ix", vectors, metric=metric, codec=codec, pq_bytes=6, lists=8, batch_vectors=400
    )
    join(path, queries, tmp_path / "r.parquet", nprobe=3)
    ids, scores = result(tmp_path / "r.parquet", QUERIES, K)
    found = IvfIndex(path).search(queries, K, nprobe=3)
    if (codec, metric) == ("pq", "ip"):  # the join finds candidates by distance, and so may miss some
        assert (found.scores >= scores * (1 - 1e-5)).all()
    else:
        np.testing.assert_allclose(found.scores, scores, rtol=1e-4, atol=1e-4)
    assert (found.vector_ids != ids).mean() < (0.03 if codec == "pq" else 0.005)  # among nearly equal ones
    assert _native.verify(str(path)) == []


def test_codes_of_integers_are_compared_with_floats(tmp_path: Path) -> None:
    path = build_lists(tmp_path / "ix", make_vectors("uint8"), codec="sq8")
    index = IvfIndex(path)
    assert (index.native.dtype, index.native.query_dtype) == ("uint8", "float32")
    queries = queries_of("uint8") + 0.25
    join(path, queries, tmp_path / "r.parquet", nprobe=4)
    ids, _ = result(tmp_path / "r.parquet", QUERIES, K)
    assert (index.search(queries, K, nprobe=4).vector_ids != ids).mean() < 0.01


@pytest.fixture(scope="module")
def long_list(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_lists(
        tmp_path_factory.mktemp("long") / "ix", make_vectors("uint8", LONG), lists=1, batch_vectors=LONG
    )


@pytest.mark.parametrize("which", ["long", "float32"])
def test_every_engine_and_thread_count_gives_the_same(
    indexes: dict[str, Path], long_list: Path, which: str
) -> None:
    path = long_list if which == "long" else indexes[which]
    queries = queries_of("uint8")[:9] if which == "long" else queries_of(which)
    nprobe = 1 if which == "long" else 6
    first = IvfIndex(path, "memory").search(queries, K, nprobe=nprobe)
    device = Path(__file__).parents[2] / "reader/core/tests/data/quick-device.json"
    for engine in ("auto", "pread", "mmap", f"simulated:{device}"):
        index = IvfIndex(path, engine)
        for threads, inflight in ((1, 1), (2, 3), (1, 250)):
            found = index.search(queries, K, nprobe=nprobe, threads=threads, inflight=inflight)
            assert np.array_equal(found.vector_ids, first.vector_ids)
            np.testing.assert_array_equal(found.scores, first.scores)
            for name in set(first.counters) - {"id_pages_read", "latency_us", "io_wait_us"}:
                np.testing.assert_array_equal(found.counters[name], first.counters[name], err_msg=name)


def test_one_list_may_hold_everything_and_is_read_in_pieces(long_list: Path) -> None:
    vectors, queries = make_vectors("uint8", LONG), queries_of("uint8")[:9]
    found = IvfIndex(long_list).search(queries, K, nprobe=1)
    distances = oracle.squares(queries, vectors)
    wanted = np.argsort(distances, axis=1, kind="stable")[:, :K]
    assert np.array_equal(found.vector_ids, wanted)
    # 21,845 rows of 12 bytes, and 65,536 ids, in 256 KiB.
    assert set(found.counters["reads"]) == {4 + 2}
    assert set(found.counters["distances"]) == {LONG}


def test_lists_that_hold_fewer_than_k_and_empty_ones_leave_gaps(tmp_path: Path) -> None:
    vectors = make_vectors("float32", 300)
    centroids = np.vstack([vectors.mean(axis=0), vectors[0] + 500, np.full(DIM, 1e5)]).astype(np.float32)
    vectors[:4] += 500  # four vectors in the second list, none in the third
    np.save(tmp_path / "c.npy", centroids)
    path = build_lists(tmp_path / "ix", vectors, centroids=str(tmp_path / "c.npy"))
    queries = np.stack([vectors[10], vectors[1], np.full(DIM, 1e5)]).astype(np.float32)
    found = IvfIndex(path).search(queries, K, nprobe=1)
    assert (found.vector_ids >= 0).sum(axis=1).tolist() == [10, 4, 0]
    assert np.array_equal(np.isnan(found.scores), found.vector_ids < 0)
    assert found.counters["lists"].tolist() == [1, 1, 0]
    np.save(tmp_path / "q.npy", queries)
    rows = run_json("search", path, "--queries", tmp_path / "q.npy", "--nprobe", 1, "--json")
    assert [row["query"] for row in rows] == [0] * 10 + [1] * 4


def test_lists_with_a_far_centroid_are_left_out(indexes: dict[str, Path]) -> None:
    index, queries = IvfIndex(indexes["float32"]), queries_of("float32")
    centroids = IvfFiles(indexes["float32"]).centroids.centroids
    away = np.sort(np.sqrt(oracle.squares(queries, centroids)), axis=1)[:, :8]
    found = index.search(queries, K, nprobe=8, prune=0.5)
    most = (away <= 1.5 * away[:, :1]).sum(axis=1)
    assert most.min() < 8 < 8 * len(most)
    assert (found.counters["lists"] <= 3 * most).all()
    assert (found.counters["lists"] > 2 * most - 3).all()  # each list in most of three batches
    near = index.search(queries, K, nprobe=8, prune=0.0)
    assert np.array_equal(near.vector_ids, index.search(queries, K, nprobe=1).vector_ids)


def test_results_carry_user_ids_and_metadata(tmp_path: Path) -> None:
    vectors = make_vectors("float32", 400)
    table = pa.table({"colour": [f"c{i % 7}" for i in range(400)]})
    index = indexmill.build(
        vectors, tmp_path / "ix", ids=[f"n{i}" for i in range(400)], metadata=table, kind="ivf", lists=9
    )
    assert isinstance(index, IvfIndex)
    assert (len(index), index.dim, index.metric, index.kind) == (400, DIM, "l2", "ivf")
    assert "400 x 12 float32, l2, 9 lists, flat" in repr(index)
    assert index.search(vectors[:3], 1).ids[:, 0].tolist() == ["n0", "n1", "n2"]
    np.save(tmp_path / "q.npy", vectors[:6])
    out = tmp_path / "r.parquet"
    run_json(
        "search",
        tmp_path / "ix",
        "--queries",
        tmp_path / "q.npy",
        "-k",
        2,
        "--nprobe",
        3,
        "--out",
        out,
        "--json",
    )
    rows = pq.read_table(out)
    first = rows.filter(pa.compute.equal(rows["rank"], 0))
    assert first["id"].to_pylist() == [f"n{i}" for i in range(6)]
    assert first["colour"].to_pylist() == [f"c{i}" for i in range(6)]
    assert run_json("verify", tmp_path / "ix")["sound"]
    memory = run_json("inspect", tmp_path / "ix")["memory_bytes"]
    assert memory == {name: index.memory[name] for name in memory}
    assert index.memory["lists"] == 0 < IvfIndex(tmp_path / "ix", "memory").memory["lists"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"nprobe": LISTS + 1},
            ConfigError,
            f"nprobe: expected 1..{LISTS}, the lists of the index, got {LISTS + 1}",
        ),
        ({"nprobe": 0}, ConfigError, "nprobe: expected 1.."),
        ({"k": 0}, InputError, "k: expected at least 1"),
        ({"k": N + 1}, InputError, f"k: the index has {N} vectors, got {N + 1}"),
        ({"prune": -0.1}, ConfigError, "prune: expected 0 or more, got -0.1"),
        ({"prune": float("nan")}, ConfigError, "prune: expected 0 or more"),
        ({"threads": 0}, ConfigError, "threads: expected 1.."),
        ({"inflight": 0}, ConfigError, "inflight: expected 1.."),
        ({"rerank": 20}, ConfigError, "rerank: flat lists are scanned exactly"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    indexes: dict[str, Path], arguments: dict[str, Any], error: type[IndexmillError], message: str
) -> None:
    with pytest.raises(error, match=message):
        IvfIndex(indexes["float32"]).search(queries_of("float32"), **arguments)


def test_queries_of_another_dimension_or_type_are_refused(indexes: dict[str, Path]) -> None:
    index = IvfIndex(indexes["float32"])
    with pytest.raises(InputError, match="queries: expected 12 dimensions, got 11"):
        index.search(np.ones((2, 11), np.float32))
    with pytest.raises(InputError, match="row 1: expected finite numbers"):
        index.search(np.array([[0.0] * 12, [np.nan] * 12]))
    with pytest.raises(InputError, match="values do not fit the index's uint8"):
        IvfIndex(indexes["uint8"]).search(np.full((1, 12), 0.5))


def test_flags_of_another_kind_are_refused(indexes: dict[str, Path], tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", queries_of("float32"))
    for flag, value, owner in (("-L", 20, "graph"), ("--radius", 2.0, "graph"), ("--probes", 1, "lsh")):
        said = run("search", indexes["float32"], "--queries", tmp_path / "q.npy", flag, value)
        assert said.exit_code == ConfigError.exit_code
        assert f"{flag}: for an index of kind {owner}, and this one is of kind ivf" in said.stderr
    with pytest.raises(OtherKind, match='expected an index of kind "graph", got one of kind "ivf"'):
        Index(indexes["float32"])
    with pytest.raises(ConfigError, match=r"tables: .* is of kind ivf"):
        indexmill.open(indexes["float32"], tables="memory")


def damaged(path: Path, into: Path) -> Path:
    """Copy an index."""
    into.mkdir()
    for file in path.iterdir():
        (into / file.name).write_bytes(file.read_bytes())
    return into


def test_a_missing_batch_is_named(indexes: dict[str, Path], tmp_path: Path) -> None:
    path = damaged(indexes["float32"], tmp_path / "ix")
    (path / "batch-000001.imx").unlink()
    with pytest.raises(CorruptFile, match=r"batch-000001.imx: file: expected \d+ bytes, got no such file"):
        indexmill.open(path)
    assert any("batch-000001.imx" in text for text in _native.verify(str(path)))


def test_a_damaged_page_is_named_where_a_query_meets_it(indexes: dict[str, Path], tmp_path: Path) -> None:
    path = damaged(indexes["float32"], tmp_path / "ix")
    with IvfFiles(path).open_batch(1) as batch:
        first = batch.file.header.sections[1].first_page
        entry = batch.directory[0]
    file = path / "batch-000001.imx"
    raw = bytearray(file.read_bytes())
    raw[first * 4096 + 100] ^= 1
    file.write_bytes(raw)
    queries = make_vectors("float32")
    centroid = IvfFiles(path).centroids.centroids[int(entry["list"])]
    near, far = oracle.squares(queries, centroid[None])[:, 0].argsort()[[0, -1]]
    for engine in ("auto", "pread", "mmap"):
        index = IvfIndex(path, engine)
        with pytest.raises(CorruptFile, match=rf"batch-000001.imx: page {first}: expected CRC32C"):
            index.search(queries[near], nprobe=1)
        index.search(queries[far], nprobe=1)  # the others are unaffected
    with pytest.raises(CorruptFile, match=r"batch-000001.imx: page"):
        IvfIndex(path, "memory")
    assert len(_native.verify(str(path))) == 1


def copied(tmp_path: Path, **options: Any) -> tuple[Path, Any]:
    """Return an index whose vectors lie in up to four lists, and the lists of each."""
    path = build_lists(tmp_path / "ix", make_vectors("float32"), copies=4, closure=2.0, lists=60, **options)
    files = IvfFiles(path)
    lists: list[set[int]] = [set() for _ in range(N)]
    for number in range(len(files.batches)):
        with files.open_batch(number) as batch:
            for place in np.flatnonzero(batch.directory["size"]).tolist():
                for vector in read_list(batch, place)[0].tolist():
                    lists[vector].add(int(batch.directory["list"][place]))
    return path, lists


def test_copies_go_to_near_cells_on_all_sides(tmp_path: Path) -> None:
    path, lists = copied(tmp_path)
    centroids = IvfFiles(path).centroids.centroids.astype(np.float64)
    away = np.sqrt(oracle.squares(make_vectors("float32"), centroids))
    between = np.sqrt(oracle.squares(centroids, centroids))
    for vector in range(0, N, 7):
        chosen: list[int] = []
        for cell in np.argsort(away[vector], kind="stable")[:16].tolist():
            near = away[vector, cell] <= 3.0 * away[vector].min()
            if near and len(chosen) < 4 and all(between[one, cell] >= away[vector, cell] for one in chosen):
                chosen.append(cell)
        assert lists[vector] == set(chosen)
    assert 1.05 * N < sum(map(len, lists)) <= 4 * N
    assert verify_index(path) == [] == _native.verify(str(path))


@pytest.mark.parametrize("codec", ["flat", "pq", "rabitq"])
def test_copies_are_found_once_and_the_join_agrees(tmp_path: Path, codec: str) -> None:
    path, lists = copied(tmp_path, codec=codec, pq_bytes=6)
    queries, centroids = queries_of("float32"), IvfFiles(path).centroids.centroids
    found = IvfIndex(path).search(queries, K, nprobe=5)
    for row in found.vector_ids:
        assert len(set(row[row >= 0])) == (row >= 0).sum()
    join(path, queries, tmp_path / "r.parquet", nprobe=5)
    ids, scores = result(tmp_path / "r.parquet", QUERIES, K)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-4)
    assert (found.vector_ids != ids).mean() < 0.02  # nearly equal ones
    if codec == "flat":
        distances = oracle.squares(queries, make_vectors("float32"))
        for query, probed in enumerate(oracle.nearest_cells(queries, centroids, 5).tolist()):
            distances[query, [not (mine & set(probed)) for mine in lists]] = np.inf
        np.testing.assert_allclose(scores, np.sort(distances, axis=1)[:, :K], rtol=1e-5)
        truth = indexmill.truth(path, queries, k=K)
        nearest = np.argsort(oracle.squares(queries, make_vectors("float32")), axis=1, kind="stable")[:, :K]
        assert np.array_equal(truth.ids, nearest)
        everything = IvfIndex(path).search(queries, K, nprobe=60)
        np.testing.assert_allclose(
            everything.scores,
            np.sort(oracle.squares(queries, make_vectors("float32")), axis=1)[:, :K],
            rtol=1e-5,
        )


@pytest.mark.parametrize("codec", ["sq8", "pq", "rabitq"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_candidates_are_measured_by_exact_vectors(tmp_path: Path, codec: str, dtype: str) -> None:
    vectors, queries = make_vectors(dtype), queries_of(dtype)
    path = build_lists(tmp_path / "ix", vectors, codec=codec, pq_bytes=4, keep_vectors=True, copies=2)
    index = IvfIndex(path)
    assert verify_index(path) == [] == _native.verify(str(path))
    found = index.search(queries, K, nprobe=LISTS)
    wanted = np.argsort(oracle.squares(queries, vectors), axis=1, kind="stable")[:, :K]
    share = np.mean([len(set(a) & set(b)) for a, b in zip(found.vector_ids, wanted, strict=True)]) / K
    codes = index.search(queries, K, nprobe=LISTS, rerank=0)
    before = np.mean([len(set(a) & set(b)) for a, b in zip(codes.vector_ids, wanted, strict=True)]) / K
    assert share > max(0.97, before - 1e-9)
    exact = np.take_along_axis(oracle.squares(queries, vectors), found.vector_ids, 1)
    np.testing.assert_allclose(found.scores, exact, rtol=1e-5)
    assert set(found.counters["reranked"]) == {100}
    assert (found.counters["vector_reads"] > 0).all()
    held = IvfIndex(path, "memory").search(queries, K, nprobe=LISTS)
    assert np.array_equal(held.vector_ids, found.vector_ids)
    with pytest.raises(ConfigError, match=r"rerank: expected 10..3000"):
        index.search(queries, K, rerank=9)


def decoded(path: Path) -> np.ndarray:
    """Return the vectors that the rows of sq8 lists stand for, float64 (n, dim), by vector id."""
    files = IvfFiles(path)
    shared = files.centroids
    assert shared.scale is not None
    vectors = np.empty((shared.n_vectors, shared.dim))
    for number in range(len(files.batches)):
        with files.open_batch(number) as batch:
            for place in np.flatnonzero(batch.directory["size"]).tolist():
                ids, rows = read_list(batch, place)
                vectors[ids] = shared.scale[0].astype(np.float64) + shared.scale[1].astype(np.float64) * rows
    return vectors


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_lists_answer_queries_far_beyond_the_range_of_sq8(tmp_path: Path, metric: str) -> None:
    vectors, queries = make_vectors("float32"), far_away(queries_of("float32"))
    path = build_lists(tmp_path / "ix", vectors, codec="sq8", metric=metric)
    asked = queries.astype(np.float64)
    if metric == "cosine":
        asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    _, wanted = exact_neighbours(decoded(path)[:, :DIM], asked, K, "ip" if metric == "ip" else "l2")
    for engine in ("auto", "memory"):
        found = IvfIndex(path, engine).search(queries, K, nprobe=LISTS)
        scores = 2 - 2 * found.scores if metric == "cosine" else found.scores
        np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-4)
    kept = build_lists(tmp_path / "kept", vectors, codec="sq8", metric=metric, keep_vectors=True)
    near, wanted = exact_neighbours(vectors, queries, K, metric)
    found = IvfIndex(kept).search(queries, K, nprobe=LISTS)
    np.testing.assert_allclose(found.scores, wanted, rtol=1e-5, atol=1e-5)
    assert (found.vector_ids != near).mean() < 0.01


def test_missing_or_damaged_exact_vectors_are_an_error_and_never_answers_by_codes(tmp_path: Path) -> None:
    path = build_lists(
        tmp_path / "ix", make_vectors("float32", 1000), codec="sq8", lists=4, keep_vectors=True
    )
    queries, file = queries_of("float32"), path / "vectors.imx"
    sound = file.read_bytes()
    damaged = bytearray(sound)
    for at in range(4096 + 100, len(sound) - 2 * 4096, 4096):  # all pages of vectors
        damaged[at] ^= 1
    file.write_bytes(damaged)
    index = IvfIndex(path)
    for rerank in (None, 20):
        with pytest.raises(CorruptFile, match=r"vectors\.imx: page \d+: .*expected"):
            index.search(queries, K, rerank=rerank)
    with pytest.raises(CorruptFile, match=r"vectors\.imx: page 1\b"):
        IvfIndex(path, "memory")
    file.unlink()
    for engine in ("auto", "memory"):
        with pytest.raises(CorruptFile, match=r"vectors\.imx: file: expected \d+ bytes, got no such file"):
            IvfIndex(path, engine)
    file.write_bytes(sound)
    assert IvfIndex(path).search(queries, K).ids.shape == (QUERIES, K)


def test_codes_without_exact_vectors_cannot_be_reranked(tmp_path: Path) -> None:
    path = build_lists(tmp_path / "ix", make_vectors("float32", 300), codec="sq8", lists=4)
    with pytest.raises(ConfigError, match=r"rerank: the index keeps no exact vectors .*--keep-vectors"):
        IvfIndex(path).search(queries_of("float32"), rerank=20)


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_a_graph_over_the_centroids_finds_most_of_the_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    vectors, queries = make_vectors("float32"), queries_of("float32")
    without = build_lists(tmp_path / "a", vectors, lists=300, metric=metric)
    monkeypatch.setattr("indexmill.pipeline.kinds.ivf.tasks.GRAPH_FROM", 200)
    path = build_lists(tmp_path / "b", vectors, lists=300, metric=metric)
    index = IvfIndex(path)
    assert (index.native.has_graph, IvfIndex(without).native.has_graph) == (True, False)
    found, exact = index.search(queries, K, nprobe=8), IvfIndex(without).search(queries, K, nprobe=8)
    assert (found.vector_ids == exact.vector_ids).mean() > 0.95
    assert (found.counters["centroid_distances"] > 0).all()
    assert index.memory["graph"] > 0
    every = index.search(queries, K, nprobe=300)
    assert np.array_equal(every.vector_ids, IvfIndex(without).search(queries, K, nprobe=300).vector_ids)
    assert verify_index(path) == [] == _native.verify(str(path))


def test_a_score_has_a_row_for_each_number_of_lists(indexes: dict[str, Path], tmp_path: Path) -> None:
    queries, base = queries_of("uint8"), indexes["uint8"].with_suffix(".npy")
    np.save(tmp_path / "q.npy", queries)
    rows = run_json(
        "score",
        indexes["uint8"],
        "--queries",
        tmp_path / "q.npy",
        "--base",
        base,
        "--nprobe",
        f"1,6,{LISTS}",
        "--json",
    )
    assert [row["nprobe"] for row in rows] == [1, 6, LISTS]
    assert rows[0]["recall"] < rows[1]["recall"] <= rows[2]["recall"] == 1
    found = IvfIndex(indexes["uint8"]).search(queries, K, nprobe=6)
    assert rows[1]["bytes_read"] == found.counters["bytes_read"].mean()
    said = run("score", indexes["uint8"], "--queries", tmp_path / "q.npy", "--base", base, "--prune", 0.2)
    assert said.exit_code == 0
    assert "nprobe" in said.stdout
    said = run("score", indexes["uint8"], "--queries", tmp_path / "q.npy", "--base", base, "-L", 20)
    assert said.exit_code == ConfigError.exit_code
    assert "-L: for an index of kind graph, and this one is of kind ivf" in said.stderr


def test_exact_vectors_of_another_index_are_damage(tmp_path: Path) -> None:
    path = build_lists(tmp_path / "ix", make_vectors("float32", 300), codec="sq8", lists=4, keep_vectors=True)
    write_vectors(path / "vectors.imx", RowFormat(DIM, "float32"), 299, "l2", make_vectors("float32", 299))
    reseal(path)
    assert [text for text in verify_index(path) if "vectors.imx: fields: expected (300, 12" in text]
    with pytest.raises(CorruptFile, match=r'vectors.imx: field "n_vectors" in the header: expected 300'):
        IvfIndex(path)


def test_lists_that_list_no_file_of_the_vectors_they_keep_are_damage(tmp_path: Path) -> None:
    path = build_lists(tmp_path / "ix", make_vectors("float32", 300), codec="sq8", lists=4, keep_vectors=True)
    check_unlisted(path, IvfIndex, IvfFiles)


def test_a_join_learns_from_the_nearest_list_of_each_copy(tmp_path: Path) -> None:
    path, lists = copied(tmp_path)
    queries, centroids = queries_of("float32"), IvfFiles(path).centroids.centroids
    truth = np.argsort(oracle.squares(queries, make_vectors("float32")), axis=1, kind="stable")[:, :K]
    ranks = np.argsort(oracle.nearest_cells(queries, centroids, 60), axis=1)  # of each list, by query
    nearest = np.array(
        [
            [min(ranks[query, cell] for cell in lists[vector]) for vector in row]
            for query, row in enumerate(truth)
        ]
    )
    recalls = [(nearest < nprobe).mean() for nprobe in range(1, 61)]
    report = join(path, queries, tmp_path / "r.parquet", nprobe=None, recall=0.9)
    assert report.nprobe == int(np.argmax(np.array(recalls) >= 0.9)) + 1
