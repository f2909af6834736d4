"""The benchmark of budgets with made-up builds: its commands, records and tables."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.jobs.bench.common import cgroup, record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, write_bin
from indexmill.jobs.bench.common.process import PeakScratch, allocated_bytes
from indexmill.jobs.bench.mill import budget, ratios
from indexmill.jobs.bench.mill.__main__ import BENCHMARK, TARGETS
from indexmill.jobs.bench.mill.space import Mill
from indexmill.jobs.bench.programs.job import AMPLE, Job, build

MIB = 2**20
N_QUERIES = 100


def fake_build(job: Job, folder: Path, group: Any = None) -> dict[str, Any]:
    """Costs of a machine with a start-up of 1 s, 6 s of Ray's, and 4% of overhead there; shards take 1.5 times."""
    rows = np.fromfile(job.base, "<u4", 1)[0]
    sharded = "shard_vectors" in job.parameters or job.memory != AMPLE
    work = rows / 10 * (1.5 if sharded else 1) / (1.8 if job.workers == 2 else 1)
    work *= 1.04 if job.executor == "ray" else 1
    (folder / job.name).mkdir(exist_ok=True)
    return {
        "wall_s": float(1 + work + (6 if job.executor == "ray" else 0)),
        "cpu_s": float(work),
        "peak_bytes": 700 * MIB,
        "peak_note": None,
        "told_peak_bytes": 700 * MIB,
        "scratch_bytes": 3 * MIB,
        "input_bytes": MIB,
        "output_bytes": MIB,
        "stage_s": {"build": 1.0},
        "mean_degree": 31.5,
        "mean_fanout": 1.3 if sharded else None,
        "shards": 4 if sharded else None,
        "build_id": "ab",
    }


def fake_count(index: Path, data: Any) -> Any:
    """Right answers of 10: a build in one piece has them all, another misses one in every tenth query."""
    right = np.full(N_QUERIES, 10)
    if "oneshot" not in index.name and "whole" not in index.name:
        right[::10] = 9
    return right


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mill:
    sets = {}
    for name, n in (("sift1m", 4000), ("generated", 12_000)):
        sets[name] = Dataset(tmp_path / f"set-{name}")
        sets[name].folder.mkdir()
        write_bin(sets[name].base, np.random.default_rng(1).integers(0, 255, (n, 4), np.uint8))
        write_bin(sets[name].query, np.random.default_rng(2).integers(0, 255, (N_QUERIES, 4), np.uint8))
    for module in (budget, ratios):
        monkeypatch.setattr(module, "build", fake_build)
        monkeypatch.setattr(module, "count_right", fake_count)
    monkeypatch.setattr(ratios, "RAY_ROWS", 3000)
    monkeypatch.setattr(Mill, "warm_up", lambda mill: None)
    return Mill(Run("mill", sets, tmp_path), sets)


def measured(space: Mill) -> dict[str, Any]:
    assert replace(BENCHMARK, space=lambda run: space).run(space.run) == []
    return record.load(space.run.results)


def test_every_part_is_measured_recorded_and_rendered(space: Mill) -> None:
    found = measured(space)
    assert list(found["parts"]) == list(BENCHMARK.parts)
    text = BENCHMARK.render(found, "record.json")
    for target in TARGETS:
        assert target.what in text
    assert text.count("\n### ") == 1 + len(BENCHMARK.parts), "a section for each part, and the targets"
    assert "peer" not in text


def test_figures_are_those_of_the_builds(space: Mill) -> None:
    found = measured(space)["parts"]
    within = found["budget"]["sets"]["sift1m"]
    assert within["to_budget"] == pytest.approx(700 / 768)
    assert within["to_scratch_bound"] == pytest.approx(3 / 4)
    assert within["points_lost"]["value"] == pytest.approx(1)
    assert within["points_lost"]["low"] < 1 < within["points_lost"]["high"]
    assert found["shards"]["ratio"]["value"] == pytest.approx((1 + 4000 / 12) / (1 + 4000 / 18), rel=0.01)
    assert found["workers"]["speedup"]["value"] == pytest.approx(1.8, rel=0.01)
    # Overhead of a tiny build on Ray: 6 s, and 4% of its 2000 / 12 s of work.
    assert found["ray"]["startup_s"] == pytest.approx(6 + 0.04 * 2000 / 12)
    near = 1 + 3000 / 12
    assert found["ray"]["ratio"]["value"] == pytest.approx((near + 0.04 * 1000 / 12) / near)


def test_a_machine_without_limits_says_so_in_the_table(space: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "mounts", lambda kind: iter(()))
    found = measured(space)
    assert "Not measured: no mounted" in BENCHMARK.render(found, "record.json")


def test_a_build_that_the_kernel_ends_is_recorded_as_not_completed(
    space: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(job: Job, folder: Path, group: Any = None) -> dict[str, Any]:
        if group is not None:
            raise RuntimeError("exit code -9 of: indexmill build")
        return fake_build(job, folder)

    monkeypatch.setattr(budget, "build", killed)
    found = measured(space)
    limited = found["parts"]["limit"]
    if limited["reason"]:
        pytest.skip(limited["reason"])
    assert limited["sets"]["sift1m"]["completed"] == 0
    assert "exit code -9" in limited["sets"]["sift1m"]["failure"]
    line = "| completed under the kernel's limit (1: yes), sift1m | 0.000 | >= 1 |  | **no** |"
    assert line in BENCHMARK.render(found, "record.json")


def test_a_part_that_fails_is_named_and_stops_no_other(
    space: Mill, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = replace(BENCHMARK, space=lambda run: space)
    assert benchmark.run(space.run, ["budget", "data"]) == ["budget"]
    assert "run it first (--parts oneshot)" in capsys.readouterr().err
    assert list(record.load(space.run.results)["parts"]) == ["data"]
    arguments = ["--sift1m", space.sets["sift1m"].folder, "--out", space.out, "--parts", "budget"]
    with pytest.raises(SystemExit, match="repeat with --parts budget"):
        benchmark.main([str(word) for word in arguments])


def test_a_job_file_says_all_that_the_build_needs(tmp_path: Path) -> None:
    job = Job("name", tmp_path / 'a "b".u8bin', "1GiB", 1, "ray", {"shard_vectors": 70, "R": 64})
    written = tomllib.loads(job.write(tmp_path).read_text())
    assert written["input"] == str(tmp_path / 'a "b".u8bin')
    assert (written["memory"], written["workers"], written["executor"]) == ("1GiB", 1, "ray")
    assert (written["parameters"]["R"], written["parameters"]["shard_vectors"]) == (64, 70)


def test_a_real_build_is_watched(tmp_path: Path) -> None:
    base = tmp_path / "base.u8bin"
    write_bin(base, np.random.default_rng(1).integers(0, 255, (1500, 16), np.uint8))
    made = build(Job("index", base, parameters={"shard_vectors": 600, "pq_bytes": 4}), tmp_path)
    assert 30 * MIB < made["peak_bytes"] < 2000 * MIB
    assert made["peak_note"] is None
    assert made["scratch_bytes"] > made["input_bytes"]
    assert made["cpu_s"] > 0
    assert not Job("index", base).work(tmp_path).exists()


def test_scratch_is_what_files_take_at_their_largest(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    with PeakScratch(folder) as peak:
        folder.mkdir()
        (folder / "a").write_bytes(b"x" * MIB)
        (folder / "b").hardlink_to(folder / "a")
        with open(folder / "hole", "wb") as file:
            file.truncate(100 * MIB)
        assert allocated_bytes(folder) == pytest.approx(MIB, abs=64 * 1024)
        while peak.bytes < MIB:
            pass
        for name in ("a", "b", "hole"):
            (folder / name).unlink()
    assert peak.bytes == pytest.approx(MIB, abs=64 * 1024)
    assert allocated_bytes(folder) == 0
