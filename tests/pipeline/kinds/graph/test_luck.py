"""Bad input and bad luck: damaged scratch files, changed input, other builds, and vectors that do not cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.builds import assert_sound, build, clustered, data_files, flip
from tests.support.progress import Stages

from indexmill.builders.cluster.shards import plan_shards
from indexmill.formats.errors import ConfigError, CorruptFile, InputError
from indexmill.pipeline.build import run_build
from indexmill.pipeline.kinds.graph import recipe
from indexmill.pipeline.kinds.graph import tasks as graph
from indexmill.pipeline.mill.publish import output_lock
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.reader.index import Index

SMALL = {"max_degree": 8, "build_list_size": 20, "pq_bytes": 4}


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5)


@pytest.mark.parametrize("damage", [flip, truncate])
@pytest.mark.parametrize("stage", ["assign", "build", "unite", "pack"])
def test_a_damaged_chunk_file_is_made_again(
    tmp_path: Path, stage: str, damage: Callable[[Path], None]
) -> None:
    vectors = clustered(900, 8)
    build(tmp_path / "whole", vectors, shard_vectors=400, work=str(tmp_path / "w"))
    damaged: list[Path] = []

    def then(made: str) -> None:
        if made == stage and not damaged:
            damaged.append(min((tmp_path / "mended.work").glob(f"{made}-*/000000.*")))
            damage(damaged[0])

    build(tmp_path / "mended", vectors, shard_vectors=400, progress=Stages(then))
    assert damaged
    assert data_files(tmp_path / "mended") == data_files(tmp_path / "whole")


def test_a_chunk_file_that_stays_damaged_is_one_clear_error(tmp_path: Path) -> None:
    def then(made: str) -> None:
        if made == "assign":
            flip(min((tmp_path / "ix.work").glob("assign-*/*.chunk")))

    with pytest.raises(CorruptFile, match=r"000000\.chunk"):
        build(tmp_path / "ix", clustered(900, 8), shard_vectors=400, progress=Stages(then))


def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Path) -> BuildSpec:
    """Start a build of `source` and stop it after its graph."""
    spec = BuildSpec(input=[str(source)], out=str(tmp_path / "ix"), parameters=Parameters(**SMALL))

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(recipe.order, "order_task", stop)
        with pytest.raises(KeyboardInterrupt):
            run_build(spec)
    return spec


def test_an_input_that_changed_between_runs_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "v.npy"
    np.save(source, clustered(500, 8))
    spec = interrupted(tmp_path, monkeypatch, source)
    np.save(source, clustered(501, 8))
    with pytest.raises(InputError, match=rf"{source}: has changed .* delete .*input-\w+\.json"):
        run_build(spec)
    next((tmp_path / "ix.work").glob("input-*.json")).unlink()
    assert run_build(spec)["input"]["n_vectors"] == 501


def test_an_input_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "v.npy"
    np.save(source, clustered(500, 8))
    from indexmill.pipeline.kinds.common import ingest

    read = ingest.ingest

    def read_then_touch(*arguments: object) -> None:
        read(*arguments)  # type: ignore[arg-type]
        os.utime(source, ns=(1, 1))

    monkeypatch.setattr(ingest, "ingest", read_then_touch)
    with pytest.raises(InputError, match="has changed"):
        run_build(BuildSpec(input=[str(source)], out=str(tmp_path / "ix"), parameters=Parameters(**SMALL)))


def test_a_second_build_into_the_same_output_is_refused(tmp_path: Path) -> None:
    with output_lock(tmp_path / "ix"), pytest.raises(ConfigError, match="another job is writing"):
        build(tmp_path / "ix", clustered(300, 8), work=str(tmp_path / "other"))
    build(tmp_path / "ix", clustered(300, 8))
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_a_work_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"work: .*file/w.* cannot be written"):
        build(tmp_path / "ix", clustered(300, 8), work=str(tmp_path / "file" / "w"))


def test_a_clock_that_jumps_back_disturbs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = data_files(build(tmp_path / "plain", clustered(400, 8)))
    now = iter(range(10**9, 0, -86_400))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    assert data_files(build(tmp_path / "jumping", clustered(400, 8))) == plain


def test_identical_vectors_are_cut_into_shards_and_found(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", np.full((2000, 8), 3, np.uint8), shard_vectors=500)
    assert_sound(index)
    found = Index(index).search(np.full((1, 8), 3, np.uint8), 10, L=50).vector_ids[0]
    assert len(set(found.tolist())) == 10


def test_one_giant_cluster_is_cut_into_shards_and_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = np.concatenate([np.zeros((1800, 8)), rng.normal(size=(200, 8)) * 100]).astype(np.float32)
    vectors[:1800, 0] = rng.permutation(1800) * 1e-3
    index = build(tmp_path / "ix", vectors, shard_vectors=500)
    assert_sound(index)
    hits = [q in Index(index).search(vectors[q : q + 1], 5, L=60).vector_ids[0] for q in range(0, 2000, 40)]
    assert np.mean(hits) > 0.95


def test_fewer_vectors_than_shards_would_hold_is_one_graph(tmp_path: Path) -> None:
    vectors = clustered(60, 8)
    whole = build(tmp_path / "whole", vectors)
    assert data_files(build(tmp_path / "ix", vectors, shard_vectors=64)) == data_files(whole)


def test_a_shard_without_vectors_is_an_empty_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from indexmill.pipeline.kinds.common import cluster

    def with_an_empty_cell(*arguments: object) -> object:
        plan = plan_shards(*arguments)  # type: ignore[arg-type]
        centroids = np.vstack([plan.centroids, plan.centroids[:1]])
        weights, parts = np.append(plan.weights, np.float32(1e6)), np.append(plan.parts, 1)
        return replace(plan, centroids=centroids, weights=weights, parts=parts)

    monkeypatch.setattr(cluster, "plan_shards", with_an_empty_cell)
    index = build(tmp_path / "ix", clustered(900, 8), shard_vectors=500)
    assert_sound(index)
    assert graph.SHARD_TOLERANCE > 1
