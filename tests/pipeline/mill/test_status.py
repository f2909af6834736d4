"""`indexmill status` and the file it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run, run_json

from indexmill.formats.errors import StorageError
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.build import run_build
from indexmill.pipeline.mill.peak import PeakMemory
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.mill.status import STATUS_NAME, StatusFile, read_status
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE, mirror_of


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def status_file(store: StageStore, clock: Clock) -> StatusFile:
    return StatusFile(Silent(), store, PeakMemory(), 1 << 30, clock)


def stages(status: dict[str, Any]) -> dict[str, str]:
    return {stage["name"]: stage["state"] for stage in status["stages"]}


def test_a_running_build_shows_stages_rate_and_time_left(tmp_path: Path) -> None:
    store, clock = StageStore(tmp_path / "ix.work", 1 << 30), Clock()
    (store.root / "data").write_bytes(bytes(5000))
    status = status_file(store, clock)
    status.start("ingest", 10, "vectors")
    clock.now += 2
    status.advance(10)
    status.finish()
    status.expect(["ingest", "build", "emit"])
    status.start("build", 1000, "vectors")
    clock.now += 4
    status.advance(200)
    status.write()
    seen = read_status(tmp_path / "ix", store.root)
    assert seen["state"] == "running"
    assert stages(seen) == {"ingest": "done", "build": "running", "emit": "waiting"}
    assert seen["stages"][0]["seconds"] == 2
    assert (seen["stages"][1]["rate"], seen["stages"][1]["eta_seconds"]) == (50, 16)
    assert seen["scratch_bytes"] == 5000
    store.close()
    assert read_status(tmp_path / "ix", store.root)["state"] == "stopped"


def test_the_time_of_day_may_jump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: -1e9)
    store, clock = StageStore(tmp_path / "ix.work"), Clock()
    status = status_file(store, clock)
    status.start("build", 10, "vectors")
    clock.now += 1
    status.advance(5)
    status.write()
    assert read_status(tmp_path / "ix", store.root)["stages"][0]["rate"] == 5
    store.close()


def test_a_status_that_cannot_be_written_does_not_stop_the_build(tmp_path: Path) -> None:
    store = StageStore(tmp_path / "ix.work")
    (store.root / STATUS_NAME).mkdir()
    with status_file(store, Clock()) as status:
        status.start("build", 1, "tasks")
        status.finish()
    assert status.note is not None
    store.close()


def test_the_file_is_whole_at_every_moment_and_written_by_itself(tmp_path: Path) -> None:
    store = StageStore(tmp_path / "ix.work")
    with status_file(store, Clock()) as status:
        status.start("build", 1, "tasks")
        assert json.loads((store.root / STATUS_NAME).read_text())["stages"] == [
            {"name": "ingest", "state": "waiting"}
        ]
    assert stages(json.loads((store.root / STATUS_NAME).read_text())) == {
        "build": "running",
        "ingest": "reused",
    }
    store.close()


def test_a_store_that_cannot_be_measured_neither_stops_a_build_nor_hides_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StageStore(tmp_path / "ix.work")

    def fail() -> int:
        raise StorageError("listing s3://bucket: failed 8 times")

    monkeypatch.setattr(store, "known_bytes", fail)
    status = status_file(store, Clock())

    def fail_in_build() -> None:
        with status:
            status.start("build", 1, "tasks")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_build()
    assert status.note == "no status: listing s3://bucket: failed 8 times"
    store.close()


def test_a_work_folder_at_a_url_is_looked_up_in_this_machines_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirrors"))
    url = "s3://key:secret@bucket/work?region=eu-west-1"
    store = StageStore(mirror_of(url))
    status_file(store, Clock()).write()
    result = run("status", tmp_path / "ix", "--work", url, "--json")
    assert json.loads(result.stdout)["state"] == "running"
    store.close()
    other = run("status", tmp_path / "ix", "--work", url.replace("bucket", "other"))
    assert other.exit_code == 3
    assert "secret" not in result.output + other.output


def small_spec(out: Path, order: str = "star", **run_settings: Any) -> BuildSpec:
    parameters = Parameters(R=8, L=12, pq_bytes=4, entries=8, sample_vectors=256, order=order)
    return BuildSpec(input=["<array>"], out=str(out), parameters=parameters, **run_settings)


def test_a_build_that_failed_is_stopped_and_then_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = array_source(np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32))
    spec = small_spec(tmp_path / "ix")
    with monkeypatch.context() as patch:
        patch.setattr("indexmill.pipeline.kinds.graph.entries.entries_task", lambda *a, **k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_build(spec, source)
    status = run_json("status", tmp_path / "ix")
    assert status["state"] == "stopped"
    assert stages(status)["build"] == "done"
    assert stages(status)["entries"] == "stopped"
    assert stages(status)["certify"] == "waiting"
    run_build(spec, source)
    assert run_json("status", tmp_path / "ix") == {
        "out": str(tmp_path / "ix"), "work": str(tmp_path / "ix.work"), "state": "published",
    }  # fmt: skip


def test_status_finds_a_build_by_its_work_directory(tmp_path: Path) -> None:
    source = array_source(np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32))
    run_build(small_spec(tmp_path / "ix", work=str(tmp_path / "work")), source)
    result = run("status", tmp_path / "ix", "--work", tmp_path / "work")
    assert result.exit_code == 0
    assert "published" in result.stdout
    assert "certify" in result.stdout


def test_a_build_that_reused_a_later_stage_is_published(tmp_path: Path) -> None:
    source = array_source(np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32))
    work = str(tmp_path / "work")
    run_build(small_spec(tmp_path / "a", work=work), source)
    run_build(small_spec(tmp_path / "b", order="random", work=work), source)
    status = run_json("status", tmp_path / "b", "--work", work)
    assert status["state"] == "published"
    assert {"done", "reused"} == set(stages(status).values())
    assert "reused" in run("status", tmp_path / "b", "--work", work).stdout


def test_status_of_nothing_is_an_error(tmp_path: Path) -> None:
    result = run("status", tmp_path / "nowhere")
    assert result.exit_code == 3
    assert "neither an index nor a build" in result.stderr
