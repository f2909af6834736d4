"""Two passes of Vamana: how a job asks for them, their cost, and parts of the index that they do not change."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.files.hostile import patch_manifest
from tests.support.cli import run, run_json
from tests.support.indexes.builds import assert_sound, build, clustered, data_files, l2, recall
from tests.support.rates import graph_rates

import indexmill
from indexmill.builders.vamana import extend
from indexmill.builders.vamana.insert import insert_vertices
from indexmill.formats.errors import ConfigError
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.build import run_build
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.graph.seconds import stage_seconds
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.spec import BuildSpec, Parameters

VECTORS = clustered(900, 12, "uint8")
FLAGS = ["-R", "12", "-L", "30", "--pq-bytes", "8", "--workers", "1"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("passes") / "v.npy"
    np.save(path, VECTORS)
    return path


@pytest.fixture(scope="module")
def twice(base: Path) -> Path:
    out = base.with_name("twice")
    said = run_json("build", "--input", base, "--out", out, "--passes", "2", *FLAGS)
    assert said["parameters"]["passes"] == 2
    return out


def test_a_flag_asks_for_two_passes_and_inspect_tells(base: Path, twice: Path) -> None:
    assert_sound(twice)
    assert "passes 2" in run("inspect", twice).stdout
    once = run_json("build", "--input", base, "--out", base.with_name("once"), *FLAGS)
    assert once["parameters"]["passes"] == 1
    assert (base.with_name("once") / "graph.imx").read_bytes() != (twice / "graph.imx").read_bytes()


def test_a_job_file_asks_for_the_same_bytes_and_a_flag_beats_it(base: Path, twice: Path) -> None:
    job = base.with_name("job.toml")
    job.write_text(
        'input = "v.npy"\nout = "from-job"\n[parameters]\npasses = 2\nR = 12\nL = 30\npq_bytes = 8\n'
    )
    run_json("build", job)
    assert data_files(base.with_name("from-job")) == data_files(twice)
    said = run_json("build", job, "--passes", "1", "--out", base.with_name("flag"))
    assert said["parameters"]["passes"] == 1


@pytest.mark.parametrize("passes", ["0", "3"])
def test_the_paper_has_no_third_pass(base: Path, tmp_path: Path, passes: str) -> None:
    refused = run("build", "--input", base, "--out", tmp_path / "ix", "--passes", passes)
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: --passes: input should be")


def test_the_partition_builder_refuses_two_passes_by_name(base: Path, tmp_path: Path) -> None:
    options = ["--input", base, "--out", tmp_path / "ix", "--builder", "partition", "--passes", "2"]
    for command in ("build", "plan"):
        refused = run(command, *options)
        assert refused.exit_code == 2
        assert "passes: goes with builder vamana, partition inserts no vertices" in refused.stderr
    with pytest.raises(ConfigError, match="passes: goes with builder vamana"):
        indexmill.build(VECTORS, tmp_path / "ix", builder="partition", passes=2)
    assert Parameters(builder="partition", passes=1).passes == 1


def test_two_passes_in_shards_are_the_same_for_any_workers(tmp_path: Path) -> None:
    vectors = clustered(1500, 12, "uint8")
    one, two = (
        build(tmp_path / f"ix{w}", vectors, workers=w, passes=2, shard_vectors=800, navigation=0.0)
        for w in (1, 2)
    )
    assert len(read_manifest(one).graph["shards"]) > 1
    assert data_files(one) == data_files(two)
    assert recall(one, vectors, clustered(40, 12, "uint8", seed=1), l2) > 0.95


class Listener:
    """Keeps the steps of the stage *build*."""

    def __init__(self) -> None:
        self.stage, self.told, self.done = "", (0, ""), 0

    def start(self, stage: str, total: int, unit: str) -> None:
        self.stage = stage
        if stage == "build":
            self.told = total, unit

    def advance(self, steps: int) -> None:
        self.done += steps * (self.stage == "build")

    def finish(self, note: str = "") -> None:
        pass


@pytest.mark.parametrize("shard_vectors", [None, 500], ids=["one piece", "shards"])
def test_progress_counts_every_vector_once_for_each_pass(tmp_path: Path, shard_vectors: int | None) -> None:
    parameters = Parameters(
        R=12, L=30, pq_bytes=8, passes=2, shard_vectors=shard_vectors, overlap=0, navigation=0
    )
    spec = BuildSpec(input=["<array>"], out=str(tmp_path / "ix"), parameters=parameters, workers=1)
    listener = Listener()
    run_build(spec, array_source(VECTORS), listener)
    total, unit = listener.told
    assert unit == "insertions"
    assert 0.99 * 2 * len(VECTORS) <= total <= 2 * len(VECTORS)
    assert 2 * len(VECTORS) <= listener.done <= 2 * len(VECTORS) + 4


def test_an_append_inserts_once_into_a_graph_of_two_passes(
    twice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = clustered(200, 12, "uint8", seed=3)
    index = shutil.copytree(twice, tmp_path / "ix")
    slacks = []

    def insert(
        vectors: Any, neighbours: Any, degrees: Any, order: Any, entry: int, p: Any, **more: Any
    ) -> int:
        slacks.append((len(order), p.alpha))
        return insert_vertices(vectors, neighbours, degrees, order, entry, p, **more)

    monkeypatch.setattr(extend, "insert_vertices", insert)
    indexmill.append(index, more)
    (graph, _) = slacks  # and its navigation graph
    assert graph == (200, 1.2)
    assert_sound(index)
    assert read_manifest(index).parameters == read_manifest(twice).parameters
    both = np.concatenate([VECTORS, more])
    assert recall(index, both, clustered(40, 12, "uint8", seed=1), l2) > 0.95


def test_an_index_older_than_passes_was_built_in_one(twice: Path, tmp_path: Path) -> None:
    index = shutil.copytree(twice, tmp_path / "ix")
    patch_manifest(index, lambda manifest: manifest["parameters"].pop("passes"))
    with OpenedIndex(index) as opened:
        assert opened.parameters.passes == 1
    indexmill.append(index, clustered(10, 12, "uint8", seed=3))
    assert_sound(index)


def test_a_second_pass_takes_a_little_longer_than_the_first() -> None:
    rates = graph_rates(2)
    shape = GraphShape(1_000_000, 32, np.dtype(np.uint8), 0, Parameters(builder="vamana"))
    once, twice = (
        stage_seconds(
            rates, replace(shape, parameters=Parameters(builder="vamana", passes=p)), {"build": 0}, {}
        )["build"]
        for p in (1, 2)
    )
    assert 2 * once < twice < 2.2 * once
