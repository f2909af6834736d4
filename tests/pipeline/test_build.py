"""Whole builds: published files, the same bit for bit in every build, and refusals."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.indexes.builds import assert_sound, build, clustered, data_files, l2, recall

from indexmill.formats.errors import BudgetError, ConfigError, InputError, OutputExistsError
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.index.manifest import read_manifest
from indexmill.pipeline.build import run_build
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.graph.memory import check_memory, fit_shards
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.reader.index import Index

if TYPE_CHECKING:
    from tests.support.processes.ray_cluster import Three


RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int8"])
def test_every_input_type_builds_and_answers(tmp_path: Path, dtype: str) -> None:
    vectors = clustered(1200, 20, dtype)
    index = build(tmp_path / "ix", vectors)
    assert_sound(index)
    assert recall(index, vectors, vectors[::40], l2) > 0.95


@pytest.mark.parametrize("node_dtype", ["float16", "sq16", "sq8"])
def test_compressed_nodes_answer_nearly_as_well(tmp_path: Path, node_dtype: str) -> None:
    vectors = clustered(1000, 16)
    index = build(tmp_path / "ix", vectors, node_dtype=node_dtype)
    assert_sound(index)
    assert recall(index, vectors, clustered(30, 16, seed=1), l2) > (0.85 if node_dtype == "sq8" else 0.95)


def test_cosine_ranks_and_scores_by_angle(tmp_path: Path) -> None:
    vectors = clustered(900, 12) * RNG.uniform(0.1, 9, (900, 1)).astype(np.float32)
    queries = clustered(20, 12, seed=5) * 3
    index = build(tmp_path / "ix", vectors, metric="cosine")

    def angle(v: np.ndarray, q: np.ndarray) -> np.ndarray:
        return -(v @ q) / np.linalg.norm(v, axis=1) / np.linalg.norm(q)

    assert recall(index, vectors, queries, angle) > 0.95
    result = Index(index).search(queries, 3)
    np.testing.assert_allclose(
        result.scores[:, 0],
        [-angle(vectors, q)[i] for q, i in zip(queries, result.vector_ids[:, 0], strict=True)],
        atol=1e-5,
    )


def test_inner_product_ranks_and_scores_by_product(tmp_path: Path) -> None:
    vectors = clustered(900, 12) * RNG.uniform(0.2, 2, (900, 1)).astype(np.float32)
    queries = clustered(20, 12, seed=5)
    index = build(tmp_path / "ix", vectors, metric="ip")
    assert recall(index, vectors, queries, lambda v, q: -(v @ q)) > 0.9
    result = Index(index).search(queries, 3)
    products = np.einsum("qd,qd->q", queries, vectors[result.vector_ids[:, 0]])
    np.testing.assert_allclose(result.scores[:, 0], products, rtol=1e-4, atol=1e-3)


def test_the_same_job_gives_the_same_bytes_for_any_workers(tmp_path: Path) -> None:
    vectors = clustered(2000, 16)
    one = build(tmp_path / "one", vectors, workers=1)
    two = build(tmp_path / "two", vectors, workers=2)
    assert data_files(one) == data_files(two)
    assert json.loads((two / "run.json").read_text())["workers"] == 2


@pytest.mark.parametrize("shard_vectors", [None, 900])
def test_ray_and_local_give_the_same_bytes(
    three: Three, tmp_path: Path, shard_vectors: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common_memory, "LEAST_ROWS", 200)  # several tasks of each kind
    vectors = clustered(2400, 12, "uint8")
    alone = build(tmp_path / "alone", vectors, workers=1, shard_vectors=shard_vectors)
    local = build(tmp_path / "local", vectors, workers=2, shard_vectors=shard_vectors)
    assert data_files(alone) == data_files(local)
    ray = build(tmp_path / "ray", vectors, workers=2, **three.options, shard_vectors=shard_vectors)
    assert data_files(local) == data_files(ray)


@pytest.mark.parametrize("builder", ["vamana", "partition"])
@pytest.mark.parametrize("shard_vectors", [None, 1300], ids=["one piece", "shards"])
def test_float16_makes_the_graph_of_the_same_vectors_in_float32(
    tmp_path: Path, shard_vectors: int | None, builder: str
) -> None:
    half = clustered(2400, 10).astype(np.float16)
    lists = []
    for name, vectors in (("half", half), ("wide", half.astype(np.float32))):
        index = build(
            tmp_path / name,
            vectors,
            shard_vectors=shard_vectors,
            node_dtype="float16",
            navigation=0,
            builder=builder,
            order="star",
        )
        assert_sound(index)
        with IndexFiles(index) as files:
            lists.append(files.graph.read_all().neighbours)
    np.testing.assert_array_equal(*lists)


def test_a_sharded_build_is_nearly_as_good_as_one_piece(tmp_path: Path) -> None:
    vectors, queries = clustered(3000, 14), clustered(60, 14, seed=3)
    whole = build(tmp_path / "whole", vectors)
    sharded = build(tmp_path / "sharded", vectors, shard_vectors=1100, workers=2)
    assert read_manifest(sharded).parameters["shard_vectors"] == 1100
    assert_sound(sharded)
    assert recall(sharded, vectors, queries, l2) > recall(whole, vectors, queries, l2) - 0.03


def test_the_number_of_tasks_does_not_reach_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = clustered(1500, 10, "int8")
    one = build(tmp_path / "one", vectors, shard_vectors=700)
    monkeypatch.setattr(common_memory, "LEAST_ROWS", 150)
    many = build(tmp_path / "many", vectors, shard_vectors=700)
    assert data_files(one) == data_files(many)


def test_memory_below_the_need_makes_shards() -> None:
    shape = GraphShape(3_000_000, 128, np.dtype(np.uint8), 0, Parameters(builder="vamana"))
    assert fit_shards(shape, 8 << 30, "local", 2).parameters.shard_vectors is None
    fitted = fit_shards(shape, 1 << 30, "local", 2)
    assert 1_000_000 < (fitted.parameters.shard_vectors or 0) < 3_000_000
    assert max(check_memory(fitted, 1 << 30, "local", 2).values()) < 1 << 30
    assert fit_shards(shape, 1 << 30, "local", 8) == fit_shards(shape, 1 << 30, "ray", 1) == fitted


def test_memory_below_any_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="give at least"):
        build(tmp_path / "ix", clustered(3000, 64), memory=1 << 20)


@pytest.mark.parametrize("order", ["identity", "random", "star", "margo"])
def test_orders_share_every_stage_before_the_order(tmp_path: Path, order: str) -> None:
    vectors = clustered(600, 8)
    work = str(tmp_path / "work")
    build(tmp_path / "first", vectors, order="identity", work=work)
    index = build(tmp_path / "second", vectors, order=order, work=work)
    names = [p.name.split("-")[0] for p in Path(work).iterdir()]
    assert names.count("build") == names.count("encode") == 1
    assert names.count("order") == (1 if order == "identity" else 2)
    assert_sound(index)
    assert read_manifest(index).layout["order"] == order


def test_certificate_is_measured(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", clustered(1500, 10))
    certificate = read_manifest(index).certificate
    assert certificate is not None
    assert 0.9 < certificate["recall_low"] <= certificate["recall"] <= certificate["recall_high"] <= 1
    assert 1 <= certificate["pages_read_mean"] <= certificate["pages_read_p99"]


def test_work_directory_goes_when_the_index_is_there(tmp_path: Path) -> None:
    build(tmp_path / "ix", clustered(300, 6))
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_ids_and_metadata_come_back(tmp_path: Path) -> None:
    vectors = clustered(400, 6)
    names = [f"item-{i:03d}" for i in range(400)]
    table = pa.table({
        "name": names,
        "price": np.arange(400) * 0.5,
        "embedding": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 6),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet")
    spec = BuildSpec(
        input=[str(tmp_path / "t.parquet")],
        id_column="name",
        metadata_columns=["price"],
        out=str(tmp_path / "ix"),
    )
    run_build(spec)
    index = Index(tmp_path / "ix")
    result = index.search(vectors[:5], 1)
    assert result.ids[:, 0].tolist() == names[:5]
    assert index.metadata(result.vector_ids[:, 0]).column("price").to_pylist() == [0.0, 0.5, 1.0, 1.5, 2.0]


# Small and odd inputs


@pytest.mark.parametrize("n", [1, 2, 7, 200])
def test_few_vectors_build(tmp_path: Path, n: int) -> None:
    vectors = clustered(n, 5)
    index = build(tmp_path / "ix", vectors)
    assert_sound(index)
    result = Index(index).search(vectors[:1], n, L=max(n, 10))
    assert sorted(result.vector_ids[0].tolist()) == list(range(n))


@pytest.mark.parametrize("dim", [1, 3, 2048])
def test_extreme_dimensions_build(tmp_path: Path, dim: int) -> None:
    vectors = clustered(300, dim)
    index = build(tmp_path / "ix", vectors, pq_bytes=32)
    assert_sound(index)
    assert recall(index, vectors, vectors[:20], l2, k=1) == 1.0


def test_identical_vectors_build_and_all_come_back(tmp_path: Path) -> None:
    vectors = np.full((300, 8), 3, np.uint8)
    index = build(tmp_path / "ix", vectors)
    assert_sound(index)
    result = Index(index).search(vectors[:1], 300, L=300)
    assert sorted(result.vector_ids[0].tolist()) == list(range(300))


# Refusals


def test_nan_is_refused_with_its_row(tmp_path: Path) -> None:
    vectors = clustered(50, 4)
    vectors[17, 2] = np.nan
    with pytest.raises(InputError, match="row 17"):
        build(tmp_path / "ix", vectors)
    assert not (tmp_path / "ix").exists()


def test_zero_vector_under_cosine_is_refused(tmp_path: Path) -> None:
    vectors = clustered(50, 4)
    vectors[8] = 0
    with pytest.raises(InputError, match="row 8"):
        build(tmp_path / "ix", vectors, metric="cosine")


def test_inner_product_of_integers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="metric"):
        build(tmp_path / "ix", clustered(50, 4, "uint8"), metric="ip")


def test_duplicate_ids_are_refused_with_both_rows(tmp_path: Path) -> None:
    table = pa.table(
        {"id": [5, 6, 7, 6], "v": pa.FixedSizeListArray.from_arrays(np.arange(8.0, dtype=np.float32), 2)}
    )
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"6.*row 1.*row 3"):
        run_build(BuildSpec(input=[str(tmp_path / "t.parquet")], id_column="id", out=str(tmp_path / "ix")))


def test_values_beyond_float16_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="float16 holds at most 65504"):
        build(tmp_path / "ix", clustered(50, 4) * 1e5, node_dtype="float16")


def test_no_vectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        build(tmp_path / "ix", np.empty((0, 4), np.float32))


def test_an_existing_index_needs_force(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", clustered(100, 4))
    before = data_files(index)
    with pytest.raises(OutputExistsError, match="--force"):
        build(tmp_path / "ix", clustered(100, 4, seed=9))
    assert data_files(index) == before
    build(tmp_path / "ix", clustered(100, 4, seed=9), force=True)
    assert data_files(index) != before


def test_a_directory_that_is_no_index_is_never_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "ix" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("years of work")
    with pytest.raises(OutputExistsError, match="not an index"):
        build(tmp_path / "ix", clustered(100, 4), force=True)
    assert precious.read_text() == "years of work"


@pytest.mark.parametrize("sibling", ["ix.work", ".ix.indexmill-new", ".ix.indexmill-old"])
def test_a_sibling_that_is_not_ours_is_never_touched(tmp_path: Path, sibling: str) -> None:
    precious = tmp_path / sibling / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("years of work")
    with pytest.raises((ConfigError, OutputExistsError), match=sibling):
        build(tmp_path / "ix", clustered(100, 4))
    assert precious.read_text() == "years of work"


@pytest.mark.parametrize(("executor", "workers"), [("local", 2), ("local", 8), ("ray", 2)])
def test_the_budget_that_a_refusal_names_is_accepted(executor: str, workers: int) -> None:
    asked = GraphShape(10_000_000, 128, np.dtype(np.uint8), 0, Parameters(builder="vamana"))
    memory = 300 << 20
    fitted = fit_shards(asked, memory, executor, workers)
    with pytest.raises(BudgetError, match="give at least") as refused:
        check_memory(fitted, memory, executor, workers, asked)
    named = int(str(refused.value).rsplit("at least ", 1)[1].split()[0].replace(",", ""))
    check_memory(fit_shards(asked, named, executor, workers), named, executor, workers, asked)


def test_shards_that_ray_has_no_room_for_are_told_the_size_that_fits() -> None:
    asked = GraphShape(10_000_000, 128, np.dtype(np.uint8), 0, Parameters(builder="vamana"))
    fitted = fit_shards(asked, 2 << 30, "ray", 2)
    with pytest.raises(BudgetError, match=r"set --shard-vectors to [\d,]+ or less") as refused:
        check_memory(fitted, 2 << 30, "ray", 2, asked)
    size = int(str(refused.value).split("--shard-vectors to ")[1].split()[0].replace(",", ""))
    explicit = GraphShape(
        10_000_000, 128, np.dtype(np.uint8), 0, Parameters(builder="vamana", shard_vectors=size)
    )
    check_memory(fit_shards(explicit, 2 << 30, "ray", 2), 2 << 30, "ray", 2)


@pytest.mark.parametrize("max_degree", [2, 4, 8])
def test_lists_of_few_neighbours_are_merged_in_the_buffers_there_are(tmp_path: Path, max_degree: int) -> None:
    index = build(tmp_path / "ix", clustered(900, 8), shard_vectors=130, R=max_degree, memory=400 << 20)
    assert_sound(index)


def test_a_node_type_that_changes_no_page_still_changes_its_fill(tmp_path: Path) -> None:
    vectors = clustered(300, 700)
    work = str(tmp_path / "work")
    build(tmp_path / "first", vectors, work=work)
    reused = build(tmp_path / "second", vectors, work=work, node_dtype="float16")
    assert data_files(reused) == data_files(build(tmp_path / "alone", vectors, node_dtype="float16"))


def test_an_output_on_a_disk_without_room_is_told_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, usage = tmp_path / "disk", shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: usage._replace(free=1000) if Path(path) == disk else usage
    )
    with pytest.raises(
        BudgetError,
        match=rf"^out: {disk}: the index takes [\d,]+ bytes, 1,000 are free; make room, or name another",
    ):
        build(disk / "ix", clustered(300, 8), work=str(tmp_path / "work"))
    assert list(disk.iterdir()) == []
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["lock"]


def test_a_copy_that_fills_the_disk_of_the_output_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(
            errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target)
        )  # as shutil does

    work = str(tmp_path / "work")
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", full)
        with pytest.raises(
            BudgetError,
            match=rf"^out: {tmp_path}/\.ix\.indexmill-new/\S+: No space left on device; copying \S+ takes [\d,]+ "
            r"bytes, [\d,]+ are free; nothing was published; free some space or name another --out",
        ):
            build(tmp_path / "ix", clustered(300, 8), work=work)
    assert not (tmp_path / "ix").exists()
    assert_sound(build(tmp_path / "ix", clustered(300, 8), work=work))
