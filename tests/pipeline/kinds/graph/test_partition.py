"""Builds with the partition builder: in one piece and in shards, their plans, and their memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.builds import assert_sound, build, clustered, data_files, l2, recall
from tests.support.processes.memory import peak_growth
from typer.testing import CliRunner

from indexmill.builders.partition.build import partitioned_bytes
from indexmill.builders.partition.carve import LEAF_MOST
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.sources.source import array_source
from indexmill.jobs.cli.main import app
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.graph.memory import check_memory, expected_shards, fit_shards, stage_bytes
from indexmill.pipeline.kinds.graph.seconds import stage_seconds, timed_kernels
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.spec import Parameters
from indexmill.reader.index import Index


@pytest.mark.parametrize("shard_vectors", [None, 1300], ids=["one piece", "shards"])
def test_builds_are_sound_good_and_the_same_for_any_workers(
    tmp_path: Path, shard_vectors: int | None
) -> None:
    vectors = clustered(2500, 12, "uint8")
    index = build(tmp_path / "one", vectors, builder="partition", shard_vectors=shard_vectors)
    assert_sound(index)
    manifest = read_manifest(index)
    assert manifest.parameters["builder"] == "partition"
    assert (len(manifest.graph["shards"]) > 1) == (shard_vectors is not None)
    assert recall(index, vectors, clustered(40, 12, "uint8", seed=1), l2) > 0.9
    two = build(tmp_path / "two", vectors, workers=2, builder="partition", shard_vectors=shard_vectors)
    assert data_files(index) == data_files(two)


#: Rows that are hard for codes, given rows drawn from a normal distribution, and their metric.
BAD: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "denormals": (lambda drawn: drawn * 1e-41, "l2"),  # all distances are zero
    "denormal distances": (lambda drawn: drawn * 1e-20, "l2"),
    "huge norms": (lambda drawn: drawn * (9e18 / np.linalg.norm(drawn, axis=1, keepdims=True)), "l2"),
    "skewed norms": (lambda drawn: drawn * np.exp(3 * drawn[:, :1]), "ip"),
    "constant": (lambda drawn: np.ones_like(drawn), "l2"),
    "copies": (lambda drawn: np.repeat(drawn[:2], len(drawn) // 2, axis=0), "l2"),
    "one dense blob": (lambda drawn: 1 + drawn * 1e-6, "l2"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_inputs_make_sound_graphs_in_which_each_row_is_found(tmp_path: Path, name: str) -> None:
    make, metric = BAD[name]
    vectors = make(np.random.default_rng(1).normal(size=(2000, 16))).astype(np.float32)
    index = build(tmp_path / "ix", vectors, builder="partition", metric=metric, R=16)
    assert_sound(index)
    with IndexFiles(index) as files:
        assert np.isfinite(files.codebook.pivots).all()
    told = json.loads((index / "run.json").read_text())
    assert 0 <= told["neighbours_missed"] < 0.5
    assert 0 <= told["leaders_missed"] <= 0.1
    found = vectors[Index(index).search(vectors, 1, L=60).vector_ids[:, 0]]
    if name != "denormals":  # which are all equally near
        apart = vectors.astype(np.float64) - found
        farther = (apart * (apart if metric == "l2" else vectors)).sum(axis=1)
        assert (farther <= 0).mean() > 0.99


def test_the_command_takes_the_builder_and_plans_it(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", clustered(1500, 8, "uint8"))
    options = ["--input", str(tmp_path / "v.npy"), "--out", str(tmp_path / "ix"), "--builder", "partition"]
    options += ["-R", "8", "-L", "20", "--pq-bytes", "4", "--workers", "1", "--json"]
    planned = CliRunner().invoke(app, ["plan", *options])
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.stdout)["stages"]["build"]["seconds"] > 0
    built = CliRunner().invoke(app, ["build", *options])
    assert built.exit_code == 0, built.output
    assert json.loads(built.stdout)["parameters"]["builder"] == "partition"


def test_a_plan_reserves_what_the_builder_takes() -> None:
    shape = GraphShape(60_000, 32, np.dtype(np.uint8), 0, Parameters(R=16, builder="partition"))
    threads = 3 * (common_memory.THREAD_BYTES + LEAF_MOST * 32)
    assert stage_bytes(shape, 1 << 30, 3)["build"] == partitioned_bytes(60_000, 32, 16) + threads


def test_the_rows_of_each_thread_s_leaf_fit_one_piece_or_it_is_cut() -> None:
    n, dim, work = 200_000, 1536, common_memory.THREAD_BYTES + LEAF_MOST * 4 * 1536
    shape = GraphShape(n, dim, np.dtype(np.float32), 0, Parameters(builder="partition"))
    memory = common_memory.FIXED_BYTES + partitioned_bytes(n, 4 * dim, 32) + 4 * work
    assert fit_shards(shape, memory, "local", 4).region_bytes is None
    check_memory(shape, memory, "local", 4)
    cut = fit_shards(shape, memory, "local", 5)
    assert cut.region_bytes is not None
    check_memory(cut, memory, "local", 5)


def test_time_grows_a_little_faster_than_the_vectors_and_not_by_insertions(tmp_path: Path) -> None:
    source = array_source(clustered(4000, 16, "uint8"))
    p = Parameters(R=12, L=30, builder="partition", navigation=0, pq_bytes=8)
    shape = GraphShape(1_000_000, 16, np.dtype(np.uint8), 0, p)
    rates = timed_kernels(source, shape, 2, tmp_path)
    assert rates.partition is not None
    size = rates.partition.size
    assert 1024 < size <= 4000
    assert min(rates.partition[1:]) > 0
    small, large = (
        stage_seconds(rates, replace(shape, n=n), {"build": 0}, {})["build"] for n in (1_000_000, 4_000_000)
    )
    assert 4 < large / small < 6
    slower = replace(rates, insertions=replace(rates.insertions, seconds=10 * rates.insertions.seconds))
    assert stage_seconds(slower, shape, {"build": 0}, {})["build"] == small
    cut = replace(shape, parameters=p.model_copy(update={"shard_vectors": 100_000}))
    cells, _ = expected_shards(cut)
    assert cells > 10
    carving = rates.partition.carving / rates.partition.workers * 1_000_000
    cut_seconds = stage_seconds(rates, cut, {"build": 0}, {})["build"]
    whole = carving * (1_000_000 / size) ** 0.2
    in_shards = 1.25 * carving * (1_250_000 // cells / size) ** 0.2
    assert cut_seconds == pytest.approx(1.25 * (small - whole) + in_shards, rel=1e-3)


@pytest.mark.memory
def test_memory_stays_below_what_is_reserved() -> None:
    n, dim, degree = 60_000, 32, 32
    grown = peak_growth(
        f"""
        import numpy as np
        from indexmill.builders.partition.build import build_partitioned
        from indexmill.builders.vamana.graph import VamanaParameters
        vectors = np.random.default_rng(1).integers(0, 256, ({n}, {dim}), dtype=np.uint8)
        p = VamanaParameters({degree}, 20, 1.2)
        build_partitioned(vectors[:1100], 0, p, seed=1, threads=2)
        """,
        "build_partitioned(vectors, 0, p, seed=1, threads=2)",
    )
    reserved = partitioned_bytes(n, dim, degree)
    assert 0.5 * reserved < grown + n * dim < reserved + (4 << 20)  # work space of two threads
