"""Joins find what brute force finds in the probed lists, batch after batch, also after interruptions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles import brute_force
from tests.oracles import ivf as oracle
from tests.oracles.files.verify import ivf_problems
from tests.support.cli import run
from tests.support.indexes.built import Built
from tests.support.indexes.ivf import DIM, LISTS, N, build_lists, join, make_vectors, result

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, CorruptFile, InputError, OutputExistsError
from indexmill.formats.ivf.centroids import MAX_BATCHES
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.pagefile import direct
from indexmill.formats.sources.truth import read_truth
from indexmill.pipeline.join import run as join_run
from indexmill.pipeline.kinds.ivf.shape import IvfShape, with_batches

QUERIES = 60


@pytest.fixture(scope="module")
def indexes(built: Built) -> dict[str, Path]:
    return {
        dtype: built(build_lists, make_vectors(dtype)) for dtype in ("uint8", "int8", "float32", "float16")
    }


def queries_of(dtype: str) -> Any:
    return make_vectors(dtype, QUERIES, seed=9)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float32", "float16"])
@pytest.mark.parametrize("nprobe", [1, 5, LISTS])
def test_a_join_finds_what_brute_force_finds_in_the_same_lists(
    indexes: dict[str, Path], tmp_path: Path, dtype: str, nprobe: int
) -> None:
    vectors, queries = make_vectors(dtype), queries_of(dtype)
    centroids = IvfFiles(indexes[dtype]).centroids.centroids
    join(indexes[dtype], queries, tmp_path / "r.parquet", nprobe=nprobe)
    ids, scores = result(tmp_path / "r.parquet", QUERIES, 10)
    wanted, distances = oracle.search(vectors, queries, centroids, nprobe, 10)
    assert np.array_equal(ids, np.where(wanted == oracle.NOTHING, -1, wanted))
    assert np.array_equal(
        scores, np.where(np.isinf(distances), np.nan, distances.astype(np.float32)), equal_nan=True
    )


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
    join(path, queries, tmp_path / "r.parquet", nprobe=nprobe)
    ids, scores = result(tmp_path / "r.parquet", 200, 10)
    same = ids == theirs
    assert same.mean() > 0.98
    assert np.allclose(scores[~same], distances[~same], rtol=1e-6)  # only among equal distances


@pytest.mark.parametrize("metric", ["ip", "cosine"])
@pytest.mark.parametrize("codec", ["flat", "sq8"])
def test_scores_are_those_of_the_metric(tmp_path: Path, metric: str, codec: str) -> None:
    vectors, queries = make_vectors("float32", 900), queries_of("float32")
    path = build_lists(tmp_path / "ix", vectors, metric=metric, codec=codec, lists=8, batch_vectors=400)
    join(path, queries, tmp_path / "r.parquet", nprobe=8)
    ids, scores = result(tmp_path / "r.parquet", QUERIES, 10)
    wanted, best = brute_force.exact_neighbours(vectors, queries, 10, metric)
    if codec == "flat":
        assert np.array_equal(ids, wanted)
        assert np.allclose(scores, best, rtol=1e-6, atol=1e-6)
    else:
        assert np.mean([len(set(a) & set(b)) for a, b in zip(ids, wanted, strict=True)]) > 9
        assert np.allclose(scores, best, rtol=0.03, atol=0.03)


def test_codes_of_residuals_find_most_neighbours(indexes: dict[str, Path], tmp_path: Path) -> None:
    vectors, queries = make_vectors("float32"), queries_of("float32")
    path = build_lists(tmp_path / "ix", vectors, codec="pq", pq_bytes=6)
    assert IvfFiles(path).centroids.row_bytes == 6
    join(path, queries, tmp_path / "r.parquet", nprobe=LISTS)
    ids, scores = result(tmp_path / "r.parquet", QUERIES, 10)
    wanted, best = oracle.search(vectors, queries, IvfFiles(path).centroids.centroids, LISTS, 10)
    assert np.mean([len(set(a) & set(b)) for a, b in zip(ids, wanted, strict=True)]) > 6
    assert np.allclose(np.median(scores / best), 1, atol=0.2)


def test_threads_and_query_blocks_do_not_change_the_result(
    indexes: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = queries_of("float32")
    join(indexes["float32"], queries, tmp_path / "a.parquet", workers=1)
    join(indexes["float32"], queries, tmp_path / "b.parquet", workers=3)
    monkeypatch.setattr("indexmill.pipeline.join.memory.MOST_QUERIES", 7)
    join(indexes["float32"], queries, tmp_path / "c.parquet", workers=2)
    first = (tmp_path / "a.parquet").read_bytes()
    assert (tmp_path / "b.parquet").read_bytes() == first
    assert (tmp_path / "c.parquet").read_bytes() == first


def test_queries_with_fewer_than_k_neighbours_have_fewer_rows_and_are_flagged(tmp_path: Path) -> None:
    vectors = make_vectors("float32", 300)
    centroids = np.vstack([vectors.mean(axis=0), vectors[0] + 500, np.full(DIM, 1e5)]).astype(np.float32)
    vectors[:4] += 500  # four vectors in the second list, none in the third
    np.save(tmp_path / "c.npy", centroids)
    path = build_lists(tmp_path / "ix", vectors, centroids=str(tmp_path / "c.npy"))
    queries = np.stack([vectors[10], vectors[1], np.full(DIM, 1e5)]).astype(np.float32)
    report = join(path, queries, tmp_path / "r.parquet", nprobe=1)
    table = pq.read_table(tmp_path / "r.parquet")
    assert table["query"].to_pylist() == [0] * 10 + [1] * 4
    assert table["short"].to_pylist() == [False] * 10 + [True] * 4
    about = json.loads(table.schema.metadata[b"indexmill.join"])
    assert (about["short"], about["empty"], report.short, report.rows) == (2, 1, 2, 14)


def test_equal_vectors_come_by_vector_id(tmp_path: Path) -> None:
    vectors = np.tile(make_vectors("float32", 5), (8, 1))
    path = build_lists(tmp_path / "ix", vectors, lists=5, batch_vectors=64)
    join(path, vectors[:5], tmp_path / "r.parquet", k=8, nprobe=1)
    ids, _ = result(tmp_path / "r.parquet", 5, 8)
    assert np.array_equal(ids, np.arange(5)[:, None] + 5 * np.arange(8))


def test_a_recall_is_reached_by_as_few_lists_as_it_takes(indexes: dict[str, Path], tmp_path: Path) -> None:
    queries, vectors = queries_of("float32"), make_vectors("float32")
    report = join(indexes["float32"], queries, tmp_path / "r.parquet", nprobe=None, recall=0.9)
    truth, _ = brute_force.exact_neighbours(vectors, queries, 10)
    centroids = IvfFiles(indexes["float32"]).centroids.centroids

    def recall(nprobe: int) -> float:
        found, _ = oracle.search(vectors, queries, centroids, nprobe, 10)
        return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, truth, strict=True)]))

    assert report.learnt_from == QUERIES
    assert report.recall == pytest.approx(recall(report.nprobe))
    assert recall(report.nprobe) >= 0.9 > recall(report.nprobe - 1)


@pytest.mark.parametrize("damage", ["missing", "page", "short"])
def test_a_damaged_batch_is_named_and_the_others_are_not_searched_again(
    indexes: dict[str, Path], tmp_path: Path, damage: str
) -> None:
    path, queries = tmp_path / "ix", queries_of("float32")
    shutil.copytree(indexes["float32"], path)
    file = path / "batch-000001.imx"
    good = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "short":
        file.write_bytes(good[:-4096])
    else:
        file.write_bytes(good[: 3 * 4096] + bytes([good[3 * 4096] ^ 1]) + good[3 * 4096 + 1 :])
    with pytest.raises(CorruptFile, match=r"1 of 3 batches cannot be read:\n.*batch-000001\.imx"):
        join(path, queries, tmp_path / "r.parquet")
    assert not (tmp_path / "r.parquet").exists()
    file.write_bytes(good)
    assert join(path, queries, tmp_path / "r.parquet").reused == 2
    join(indexes["float32"], queries, tmp_path / "whole.parquet")
    assert (tmp_path / "r.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not [p for p in tmp_path.iterdir() if "join" in p.name]


def test_every_damaged_batch_is_named(indexes: dict[str, Path], tmp_path: Path) -> None:
    path, queries = tmp_path / "ix", queries_of("float32")
    shutil.copytree(indexes["float32"], path)
    (path / "batch-000002.imx").unlink()
    with open(path / "batch-000000.imx", "r+b") as file:
        file.truncate(4096)
    problems = "\n".join(ivf_problems(IvfFiles(path)))
    for run_it in (
        lambda: join(path, queries, tmp_path / "r.parquet"),
        lambda: join(path, queries, tmp_path / "r.parquet", nprobe=None, recall=0.9),
        lambda: indexmill.truth(path, queries, k=3),
    ):
        with pytest.raises(CorruptFile, match=r"(?s)restore these files and run again") as caught:
            run_it()
        problems += str(caught.value)
    assert problems.count("batch-000000.imx") == problems.count("batch-000002.imx") == 4
    assert "batch-000001.imx" not in problems


def test_partial_results_of_another_job_are_not_taken(indexes: dict[str, Path], tmp_path: Path) -> None:
    path, queries = tmp_path / "ix", queries_of("float32")
    shutil.copytree(indexes["float32"], path)
    (path / "batch-000002.imx").rename(tmp_path / "aside")
    with pytest.raises(CorruptFile):
        join(path, queries, tmp_path / "r.parquet", nprobe=3)
    (tmp_path / "aside").rename(path / "batch-000002.imx")
    assert join(path, queries, tmp_path / "r.parquet", nprobe=2).reused == 0


def test_a_damaged_partial_result_is_computed_again(indexes: dict[str, Path], tmp_path: Path) -> None:
    path, queries = tmp_path / "ix", queries_of("float32")
    shutil.copytree(indexes["float32"], path)
    (path / "batch-000002.imx").rename(tmp_path / "aside")
    with pytest.raises(CorruptFile):
        join(path, queries, tmp_path / "r.parquet")
    (tmp_path / "aside").rename(path / "batch-000002.imx")
    (part,) = tmp_path.glob(".r.parquet.indexmill-join/000000.part")
    data = bytearray(part.read_bytes())
    data[4096 + 9] ^= 1
    part.write_bytes(data)
    assert join(path, queries, tmp_path / "r.parquet").reused == 1


def test_a_full_disk_keeps_what_was_found(
    indexes: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "r.parquet"))

    with monkeypatch.context() as patch:
        patch.setattr(join_run, "write_result", full)
        with pytest.raises(
            BudgetError, match=r"r\.parquet: No space left on device; partial results are kept"
        ):
            join(indexes["float32"], queries_of("float32"), tmp_path / "r.parquet")
    assert join(indexes["float32"], queries_of("float32"), tmp_path / "r.parquet").reused == 3


def test_short_reads_are_continued(
    indexes: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, real = queries_of("uint8"), direct.os.preadv
    join(indexes["uint8"], queries, tmp_path / "a.parquet")
    calls = []

    def short(handle: int, buffers: list[memoryview], offset: int) -> int:
        calls.append(offset)
        return int(real(handle, [buffers[0][:4096]], offset))

    monkeypatch.setattr(direct.os, "preadv", short)
    join(indexes["uint8"], queries, tmp_path / "b.parquet")
    assert len(calls) > 30
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_user_ids_of_both_sides_stand_in_the_result(tmp_path: Path) -> None:
    vectors = make_vectors("float32", 200)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
    pq.write_table(pa.table({"v": column, "name": [f"v{i}" for i in range(200)]}), tmp_path / "v.parquet")
    for name in ("build", "join"):
        if name == "build":
            done = run(
                "build", "--kind", "ivf", "--input", tmp_path / "v.parquet", "--id-column", "name", "--lists", 4,
                "--out", tmp_path / "ix",
            )  # fmt: skip
        else:
            done = run(
                "join", tmp_path / "v.parquet", tmp_path / "ix", "--id-column", "name", "-k", 1, "--nprobe", 1,
                "--out", tmp_path / "r.parquet",
            )  # fmt: skip
        assert done.exit_code == 0, done.output
    table = pq.read_table(tmp_path / "r.parquet")
    assert table["query"].to_pylist() == table["id"].to_pylist() == [f"v{i}" for i in range(200)]
    assert table["score"].to_pylist() == [0] * 200


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"nprobe": LISTS + 1}, ConfigError, f"nprobe: expected at most {LISTS}"),
        ({"nprobe": 0}, ConfigError, "nprobe: expected at least 1"),
        ({"nprobe": None}, ConfigError, "nprobe, recall: expected one of them"),
        ({"nprobe": None, "recall": 1.5}, ConfigError, "recall: expected above 0"),
        ({"memory": 1 << 20}, BudgetError, "memory: two batches of .* need"),
    ],
)
def test_what_cannot_be_is_refused(
    indexes: dict[str, Path], tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        join(indexes["float32"], queries_of("float32"), tmp_path / "r.parquet", **options)
    assert not list(tmp_path.iterdir())


def test_queries_of_another_dimension_are_refused(indexes: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"queries: {DIM + 1} dimensions, but the index has {DIM}"):
        join(indexes["float32"], np.ones((3, DIM + 1), np.float32), tmp_path / "r.parquet")


def test_a_join_of_no_queries_is_refused(indexes: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="queries: there are none; pass at least one"):
        join(indexes["float32"], np.ones((0, DIM), np.float32), tmp_path / "r.parquet")


def test_an_existing_result_is_replaced_only_by_force(indexes: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    indexmill.join(queries_of("uint8"), indexes["uint8"], out, nprobe=2)
    with pytest.raises(OutputExistsError):
        indexmill.join(queries_of("uint8"), indexes["uint8"], out, nprobe=2)
    assert indexmill.join(queries_of("uint8"), indexes["uint8"], out, nprobe=3, force=True).nprobe == 3


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_truth_over_vectors_is_brute_force_and_the_same_over_an_index(tmp_path: Path, metric: str) -> None:
    vectors, queries = make_vectors("float32", 700), queries_of("float32")
    path = build_lists(tmp_path / "ix", vectors, metric=metric, lists=8, batch_vectors=300)
    np.save(tmp_path / "q.npy", queries)
    done = run(
        "truth",
        tmp_path / "ix.npy",
        tmp_path / "q.npy",
        "-k",
        20,
        "--metric",
        metric,
        "--out",
        tmp_path / "a.gt",
    )
    assert done.exit_code == 0, done.output
    wanted, _ = brute_force.exact_neighbours(vectors, queries, 20, metric)
    assert np.array_equal(read_truth(tmp_path / "a.gt").ids, wanted)
    done = run("truth", path, tmp_path / "q.npy", "-k", 20, "--out", tmp_path / "b.gt")
    assert done.exit_code == 0, done.output
    a, b = read_truth(tmp_path / "a.gt"), read_truth(tmp_path / "b.gt")
    assert np.array_equal(a.ids, b.ids)
    assert np.allclose(a.distances, b.distances, rtol=1e-5, atol=1e-5)


def test_truth_refuses_codes_and_more_neighbours_than_vectors(tmp_path: Path) -> None:
    path = build_lists(tmp_path / "ix", make_vectors("float32", 300), codec="sq8")
    with pytest.raises(ConfigError, match="its lists hold codes"):
        indexmill.truth(path, queries_of("float32"))
    with pytest.raises(InputError, match="k: 301 neighbours wanted of 300 vectors"):
        indexmill.truth(tmp_path / "ix.npy", queries_of("float32"), k=301)
    assert indexmill.truth(tmp_path / "ix.npy", queries_of("float32"), k=3).ids.shape == (QUERIES, 3)
    assert N > 300


@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "component 2 is nan"), (1e200, "component 2 is inf")]
)
def test_queries_in_memory_without_a_distance_are_named(
    indexes: dict[str, Path], tmp_path: Path, value: float, message: str
) -> None:
    queries = queries_of("float32").astype(np.float64)
    queries[7, 2] = value
    for index in (indexes["float32"], indexes["float32"].with_suffix(".npy")):
        with pytest.raises(InputError, match=f"queries: row 7: {message}"):
            indexmill.truth(index, queries, k=3)
    with pytest.raises(InputError, match=f"queries: row 7: {message}"):
        indexmill.join(queries, indexes["float32"], tmp_path / "r.parquet", nprobe=1)
    with pytest.raises(InputError, match="queries: dtype complex128 is not numeric"):
        indexmill.join(queries.astype(complex), indexes["float32"], tmp_path / "r.parquet", nprobe=1)


def test_queries_in_memory_have_no_column_of_ids(indexes: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="an array of queries has no columns; name a file, or leave id_column out"
    ):
        indexmill.join(
            queries_of("float32"), indexes["float32"], tmp_path / "r.parquet", nprobe=1, id_column="sku"
        )


def test_more_batches_than_a_file_names_are_refused() -> None:
    shape = SimpleNamespace(n=MAX_BATCHES * 64 + 1, parameters=SimpleNamespace(batch_vectors=64))
    with pytest.raises(ConfigError, match=r"batch_vectors: 64,000,001 vectors .*; give at least 65"):
        with_batches(cast(IvfShape, shape), 1 << 30)
