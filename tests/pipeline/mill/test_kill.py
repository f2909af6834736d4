"""A build killed anywhere and run again gives the bytes of an undisturbed build, and redoes only what was in flight."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.indexes.builds import clustered, data_files
from tests.support.processes.kill import MOMENTS, Driver, leave_half_files, moments_of

from indexmill.pipeline.execution.failpoint import FAILPOINTS
from indexmill.pipeline.mill.publish import check_output

pytestmark = pytest.mark.kill

WHOLE = ["ingest", "sample", "cluster", "build", "order", "entries", "encode", "navigation"]
WHOLE += ["pack", "emit", "certify"]
SHARDED = ["assign", "build", "unite", "link", "pack"]
SHARD = 300


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(tmp_path_factory.mktemp("kill"), clustered(700, 8))


@pytest.fixture(scope="module")
def undisturbed(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return {shard: driver.succeed(folder / str(shard), shard) for shard in (0, SHARD)}


@pytest.mark.parametrize(("shard", "stages"), [(0, WHOLE), (SHARD, SHARDED)])
def test_killed_at_every_failpoint_of_every_stage(
    driver: Driver, undisturbed: dict[int, dict[str, bytes]], tmp_path: Path, shard: int, stages: list[str]
) -> None:
    assert driver.die_at_each(tmp_path / "ix", shard, moments_of(stages)) == undisturbed[shard]


@pytest.mark.parametrize("stage", ["sample", "build", "pack"])
def test_killed_while_a_stage_is_dropped(
    driver: Driver, undisturbed: dict[int, dict[str, bytes]], tmp_path: Path, stage: str
) -> None:
    driver.die(tmp_path / "ix", SHARD, f"{stage}-dropping")
    assert driver.succeed(tmp_path / "ix", SHARD) == undisturbed[SHARD]


@pytest.mark.parametrize("moment", ["task-written", "task-done"])
def test_killed_between_tasks_redoes_only_the_task_in_flight(
    driver: Driver, undisturbed: dict[int, dict[str, bytes]], tmp_path: Path, moment: str
) -> None:
    work = tmp_path / "work"
    driver.die(tmp_path / "ix", SHARD, f"{moment}:3", work=str(work))  # the second shard's graph
    made = {p: p.stat().st_mtime_ns for p in work.rglob("*.chunk")}
    stages = {p: p.stat().st_mtime_ns for p in work.rglob("stage.json")}
    assert len(made) == {"task-written": 2, "task-done": 3}[moment]
    driver.die(tmp_path / "ix", SHARD, "build-written", work=str(work))
    assert {p: p.stat().st_mtime_ns for p in made} == made
    assert {p: p.stat().st_mtime_ns for p in stages} == stages
    assert driver.succeed(tmp_path / "ix", SHARD, work=str(work)) == undisturbed[SHARD]


@pytest.mark.parametrize(("shard", "failpoint"), [(0, "build-written"), (SHARD, "task-done:3")])
def test_a_killed_build_by_partitions_goes_on_to_the_same_bytes(
    driver: Driver, undisturbed: dict[int, dict[str, bytes]], tmp_path: Path, shard: int, failpoint: str
) -> None:
    out, whole = tmp_path / "ix", tmp_path / "whole"
    driver.die(out, shard, failpoint, builder="partition")
    made = driver.succeed(out, shard, builder="partition")
    assert made == driver.succeed(whole, shard, builder="partition")
    assert made["graph.imx"] != undisturbed[shard]["graph.imx"]


def test_killed_after_random_delays(
    driver: Driver, undisturbed: dict[int, dict[str, bytes]], tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(1000)
    print(f"seed {seed}")  # shown when the test fails
    rng = random.Random(seed)
    kills = 0
    for most in (0.05, 0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3):
        status, message = driver.run(
            tmp_path / "ix", SHARD, delay=rng.uniform(0, most), workers=2, force=True
        )
        kills += status == -signal.SIGKILL
        assert (status, message) in ((0, ""), (-signal.SIGKILL, ""))
    assert kills >= 3
    driver.succeed(tmp_path / "ix", SHARD, force=True)
    assert data_files(tmp_path / "ix") == undisturbed[SHARD]


def test_killed_while_replacing_an_index_loses_neither(
    driver: Driver, undisturbed: dict[int, dict[str, bytes]], tmp_path: Path
) -> None:
    out = tmp_path / "ix"
    driver.succeed(out, SHARD)
    for moment in ("copied", "sealed"):
        driver.die(out, 0, f"publish-{moment}", force=True)
        assert data_files(out) == undisturbed[SHARD]
    for moment in ("aside", "done"):
        driver.die(out, 0, f"publish-{moment}", force=True)
        assert data_files(out) == undisturbed[0]
    assert driver.succeed(out, 0, force=True) == undisturbed[0]
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_killed_while_replacing_an_index_without_an_exchange_loses_neither(
    driver: Driver, undisturbed: dict[int, dict[str, bytes]], tmp_path: Path
) -> None:
    out = tmp_path / "ix"
    driver.succeed(out, SHARD)
    for moment in ("copied", "sealed", "aside"):
        driver.die(out, 0, f"publish-{moment}", force=True, exchange=False)
        assert out.exists() == (moment != "aside")
        check_output(out, force=True)  # what any later build does first
        assert data_files(out) == undisturbed[SHARD]
    driver.die(out, 0, "publish-done", force=True, exchange=False)
    assert data_files(out) == undisturbed[0]
    assert driver.succeed(out, 0, force=True, exchange=False) == undisturbed[0]
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_half_written_files_of_a_killed_run_are_not_taken_for_whole_ones(
    driver: Driver, undisturbed: dict[int, dict[str, bytes]], tmp_path: Path
) -> None:
    out = tmp_path / "ix"
    for stage in ("assign", "build", "link", "emit"):
        driver.die(out, SHARD, f"{stage}-begun")
        names = ("vectors.npy", "neighbours.npy", "graph.imx", "000000.chunk.99.partial")
        leave_half_files(tmp_path / "ix.work", stage, names)
    assert driver.succeed(out, SHARD) == undisturbed[SHARD]


@pytest.mark.parametrize("error", ["ENOSPC", "EROFS"])
@pytest.mark.parametrize("place", ["task-written:2", "link-written"])
def test_a_scratch_disk_that_refuses_is_one_clear_error(
    driver: Driver, undisturbed: dict[int, dict[str, bytes]], tmp_path: Path, place: str, error: str
) -> None:
    status, message = driver.run(tmp_path / "ix", SHARD, failpoint=f"{place}={error}")
    assert status == 4
    assert "scratch" in message
    assert "finished stages are kept" in message
    assert driver.succeed(tmp_path / "ix", SHARD) == undisturbed[SHARD]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_is_one_clear_error_and_the_rerun_goes_on(
    driver: Driver, undisturbed: dict[int, dict[str, bytes]], tmp_path: Path, small_disk: Path
) -> None:
    work = str(small_disk / "work")
    status, message = driver.run(tmp_path / "ix", SHARD, work=work)
    assert status == 4, message
    assert "No space left on device" in message
    assert work in message
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    assert driver.succeed(tmp_path / "ix", SHARD, work=work) == undisturbed[SHARD]


def test_killed_while_the_work_directory_is_deleted(
    driver: Driver, undisturbed: dict[int, dict[str, bytes]], tmp_path: Path
) -> None:
    out = tmp_path / "ix"
    for turn in (1, 2, 3):
        driver.die(out, SHARD, f"store-removing:{turn}", force=True)
        assert data_files(out) == undisturbed[SHARD]
    assert driver.succeed(out, SHARD, force=True) == undisturbed[SHARD]
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_every_failpoint_has_a_test() -> None:
    tested = {f"stage-{moment}" for moment in (*MOMENTS, "dropping")}
    tested |= {
        "task-written",
        "task-done",
        "store-removing",
        "generation-linked",
        "gc-removing",
        "put-written",
    }
    tested |= {f"publish-{moment}" for moment in ("copied", "sealed", "aside", "done")}
    assert set(FAILPOINTS) == tested
