"""`indexmill bench assign`, and the page made from its record."""

from __future__ import annotations

import errno
import json
import shutil
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run, run_json

from indexmill.formats.errors import BudgetError
from indexmill.formats.sources.source import open_source
from indexmill.jobs.bench.assign import __main__ as bench_assign
from indexmill.jobs.bench.assign import chunks, drives, large
from indexmill.jobs.bench.assign.__main__ import BENCHMARK
from indexmill.jobs.bench.assign.large import assigned
from indexmill.jobs.bench.common import benchmark, record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset
from indexmill.jobs.bench.common.generate import generate
from indexmill.jobs.bench.common.loop import Drive, Rates
from indexmill.jobs.grouping import setting
from indexmill.jobs.grouping.setting import POLICIES
from indexmill.pipeline.grouping.policies import cluster_bytes

pytestmark = pytest.mark.bench

N, DIM = 3000, 8


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.npy"
    np.save(path, np.random.default_rng(2).integers(0, 255, (N, DIM)).astype(np.uint8))
    return path


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def small(base: Path, *scratch: Path) -> list[object]:
    paths = [word for path in scratch for word in ("--scratch", path)]
    return ["bench", "assign", base, "--leaders", 300, "--in-buffer", "8KiB,16KiB", "--workers", 2, *paths]


def test_each_scratch_in_buffer_and_policy_is_measured(base: Path, scratch: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    found = run_json(*small(base, scratch, second), "--rounds", 2)
    runs = found["runs"]
    assert [(r["round"], r["scratch"], r["in_buffer_bytes"], r["policy"]) for r in runs] == [
        (turn, place, size, policy)
        for turn in (0, 1) for place in (0, 1) for size in (8192, 16384) for policy in ("temp", "chunk")
    ]  # fmt: skip
    assert [r["in_buffers"] for r in runs[:4]] == [3, 3, 2, 2]
    assert len({r["sha256"] for r in runs}) == 1
    for r in runs:
        assert r["total_s"] == pytest.approx(r["distance_s"] + r["assign_s"] + r["merge_s"], abs=0.01)
        assert r["merging"]["bytes_written"] == cluster_bytes(N, DIM)
        assert r["assigning"]["bytes_written"] >= cluster_bytes(N, DIM)
        assert r["merging"]["bytes_read"] >= cluster_bytes(N, DIM)
    temp, chunk = runs[:2]
    assert chunk["assigning"]["opens"] < 10
    assert temp["assigning"]["opens"] > 500
    assert list(scratch.iterdir()) == list(second.iterdir()) == []
    assert found["parameters"]["index"] == "groups"
    assert found["parameters"]["agreement"] > 0.9
    assert {"cpu", "cores"} <= found["machine"].keys()
    assert {"indexmill", "numpy"} <= found["versions"].keys()
    assert str(tmp_path) not in json.dumps(found)


@pytest.mark.parametrize("index", ["tree", "graph"])
def test_leaders_may_be_found_by_another_index_whose_error_is_recorded(
    base: Path, scratch: Path, index: str
) -> None:
    result = run(*small(base, scratch), "--index", index, "--beam", 4, "--json")
    assert result.exit_code == 0, result.stderr
    used = json.loads(result.stdout)["parameters"]
    assert used["index"] == index
    assert 0.3 < used["agreement"] <= 1
    assert used["excess_distance"] >= 0
    leaves = json.loads(run(*small(base, scratch), "--leaf", 2, "--json").stdout)["parameters"]
    assert leaves["leaders"] == -(-N * DIM // 2048)


def test_the_table_has_a_line_a_run_and_the_record_is_written(
    base: Path, scratch: Path, tmp_path: Path
) -> None:
    out = tmp_path / "record.json"
    result = run(*small(base, scratch), "--index", "exact", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count(" chunk ") == result.stdout.count(" temp ") == 2
    assert "300 leaders (exact, agreement 100.0%)" in result.stdout
    assert "chunk 8.0 KiB" in result.stderr
    assert len(json.loads(out.read_text())["runs"]) == 4
    again = run(*small(base, scratch), "--out", out)
    assert again.exit_code == 5
    assert "--force" in again.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--in-buffer", "7"], 2, "in-buffer: expected at least 8 bytes, one vector, got 7"),
        (["--in-buffer", "many"], 2, "--in-buffer: 'many' is not a size"),
        (["--in-buffer", ","], 2, "--in-buffer: the list is empty"),
        (["--leaders", N + 1], 2, "leaders: expected 1 to 3,000"),
        (["--leaders", 0], 2, "leaders: expected 1 to 3,000"),
        (["--scratch", "missing"], 2, "--scratch: missing is no directory; create it first"),
        (["--out", "missing/a.json"], 2, "--out: missing/a.json: the folder missing does not exist"),
    ],
)
def test_bad_flags_are_refused_before_anything_is_written(
    base: Path, scratch: Path, options: list[object], code: int, message: str
) -> None:
    result = run(*small(base, scratch), *options)
    assert result.exit_code == code
    assert message in result.stderr
    assert list(scratch.iterdir()) == []


def test_as_many_leaders_as_vectors_are_measured_without_an_index(tmp_path: Path, scratch: Path) -> None:
    np.save(tmp_path / "few.npy", np.random.default_rng(2).integers(0, 255, (300, DIM)).astype(np.uint8))
    found = run_json(*small(tmp_path / "few.npy", scratch))
    assert found["parameters"]["index"] == "exact"
    assert all(r["empty_leaders"] == 0 and r["largest_cluster"] == 1 for r in found["runs"])


@pytest.mark.parametrize("turn", [1, 2, 4])
def test_a_full_disk_is_one_error_and_nothing_is_left(
    base: Path, scratch: Path, arm: Callable[[str], None], turn: int
) -> None:
    arm(f"task-written:{turn}=ENOSPC")
    result = run(*small(base, scratch))
    assert result.exit_code == 4
    assert result.stderr.count("error:") == 1
    assert "No space left on device" in result.stderr
    assert list(scratch.iterdir()) == []


def test_a_path_that_cannot_be_written_is_named(
    base: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(prefix: str, dir: Path) -> str:
        raise OSError(errno.EROFS, "Read-only file system", str(dir / "indexmill-assign-x"))

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    result = run(*small(base, scratch))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {scratch}: Read-only file system")  # before leaders are indexed


def test_too_little_room_is_refused_beforehand(
    base: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        f_bsize = f_frsize = 4096
        f_bavail = 10

    monkeypatch.setattr(setting.os, "statvfs", lambda path: Full)
    with pytest.raises(BudgetError, match=r"expected 1,300,800 free bytes, got 40,960"):
        setting.check(open_source(base), setting.Setting(300, [8192], [scratch], 1))
    result = run(*small(base, scratch))
    assert result.exit_code == 4
    assert list(scratch.iterdir()) == []


def test_a_leader_that_is_not_finite_is_named(tmp_path: Path, scratch: Path) -> None:
    vectors = np.ones((50, 4), np.float32)
    vectors[31, 1] = np.inf
    np.save(tmp_path / "bad.npy", vectors)
    result = run("bench", "assign", tmp_path / "bad.npy", "--leaders", 50, "--scratch", scratch)
    assert result.exit_code == 3
    assert "vector 31" in result.stderr


def make_run(policy: str, total: float, turn: int = 0, place: int = 0) -> dict[str, Any]:
    phase = {"operations": 1234, "bytes_written": 2_000_000, "bytes_read": 1_000_000}
    times = {"distance_s": 0.95 * total, "assign_s": 1.0, "merge_s": 2.0, "add_s": 3.0, "remove_s": 4.0}
    return {
        "round": turn, "scratch": place, "in_buffer_bytes": 16 << 20, "policy": policy, "total_s": total,
        **times, "assigning": phase, "merging": phase,
    }  # fmt: skip


def test_figures_are_those_of_the_round_with_the_median_total() -> None:
    runs = [make_run("temp", total, turn) for turn, total in enumerate((30.0, 10.0, 20.0))]
    runs.append(make_run("temp", 99.0, place=1))
    assert [r["total_s"] for r in setting.median_runs(runs, 0)] == [20.0]
    assert [r["total_s"] for r in setting.median_runs(runs, 1)] == [99.0]


def test_a_page_is_written_from_a_record_between_its_own_marks(
    base: Path, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = run_json(*small(base, scratch))
    told["runs"] = [make_run("temp", 40.0), make_run("chunk", 20.0)]
    found: dict[str, Any] = {}
    record.begin(found, tmp_path / "none", "assign", [told["data"]], {})
    found["parts"]["assign"] = record.start_part() | assigned(told)
    where = tmp_path / "page.md"
    begin, end = (f"<!-- assign: {side} -->" for side in ("begin", "end"))
    others = "<!-- record: begin --> x <!-- record: end -->"
    where.write_text(f"before\n{begin}\nold\n{end}\nafter {others}\n")
    monkeypatch.setattr(benchmark, "PAGE", "page.md")
    monkeypatch.setattr(benchmark, "REPOSITORY", tmp_path)
    monkeypatch.setattr(record, "RECORDS", tmp_path / "records")
    BENCHMARK.keep(found)
    text = where.read_text()
    assert text.startswith(f"before\n{begin}\n")
    assert text.endswith(f"{end}\nafter {others}\n")
    assert "old" not in text
    line = next(line for line in text.splitlines() if "| chunk |" in line)
    assert "| 5% (met) | 2.00 | 1.00 | 1,234 | 1,234 | 4 | 2 |" in line
    (kept,) = (tmp_path / "records").iterdir()
    assert f"records/{kept.name}" in text
    assert record.load(kept) == found
    with pytest.raises(ValueError, match="no record of this benchmark"):
        BENCHMARK.render({**found, "format": 0}, "x")


def test_help_has_examples() -> None:
    result = run("bench", "assign", "--help")
    assert result.exit_code == 0
    assert result.stdout.split("Examples:")[1].count("indexmill bench assign ") >= 2
    assert "assign" in run("bench", "--help").stdout


@pytest.fixture
def tried(scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Small vectors, leaves and in-buffers."""
    for module in (large, drives):
        monkeypatch.setattr(module, "PAPER_BUFFER", 1 << 17)
    monkeypatch.setattr(large, "LEAF_KIB", 1)
    monkeypatch.setattr(large, "BUFFERS", (1 << 17,))
    monkeypatch.setattr(bench_assign, "IN_BUFFERS", (1 << 14,))
    data = Dataset(tmp_path / "set")
    generate(data.folder, 300, 5, 1)
    options = Namespace(scratch=[scratch], rounds=1, leaders=260)
    return Run("assign", {"sift1m": data}, tmp_path, 300, options)


def test_generated_vectors_are_assigned_through_the_studys_tree(tried: Run) -> None:
    assert BENCHMARK.run(tried, ["assign", "tree"]) == []
    found = record.load(tried.results)
    leaders = found["parts"]["tree"]["leaders"]
    assert (leaders["leaders"], leaders["index"], leaders["depth"], leaders["beam"]) == (375, "tree", 3, 1)
    assert [one["in_buffers"] for one in found["parts"]["tree"]["runs"]] == [3, 3]
    assert [one["name"] for one in found["data"]] == ["sift1m"]
    assert found["parts"]["tree"]["data"]["n_vectors"] == 3000
    assert "### Leaders in a tree: 3,000 vectors" in BENCHMARK.render(found, "r.json")


def test_other_indexes_over_the_leaders_are_parts_of_their_own(tried: Run) -> None:
    assert BENCHMARK.run(tried, ["assign-exact", "assign-graph"]) == []
    found = record.load(tried.results)
    for index in ("exact", "graph"):
        part = found["parts"][f"assign-{index}"]
        assert part["leaders"]["index"] == index
        assert [(run["policy"], run["in_buffer_bytes"]) for run in part["medians"]] == [
            (policy, bench_assign.ONE_BUFFER[0]) for policy in POLICIES
        ]
    text = BENCHMARK.render(found, "r.json")
    assert "### Leaders found by brute force" in text
    assert "260 leaders, found through graph: the nearest of" in text


def test_parts_lie_on_the_drive_of_their_setup(
    tried: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders stand in for drives: each has room for what lies there, and is held to its rates meanwhile."""
    made: list[tuple[int, Path]] = []
    rates: list[tuple[Path, Rates]] = []
    at_work: list[tuple[Path, Path, int]] = []

    @contextmanager
    def drive(n_bytes: int) -> Iterator[Drive]:
        folder = tmp_path / f"drive-{len(made)}"
        folder.mkdir()
        made.append((n_bytes, folder))
        yield Drive(folder, f"7:{len(made)}")
        shutil.rmtree(folder)

    @contextmanager
    def held(one: Drive, limit: Rates) -> Iterator[None]:
        rates.append((one.folder, limit))
        yield

    real = drives.grouping.Run.measure

    def measure(self: Any, source: Any, index: Any, progress: Any) -> dict[str, Any]:
        at_work.append((Path(source.paths[0]).parent, self.scratch, len(rates)))
        return real(self, source, index, progress)

    monkeypatch.setattr(drives, "drive", drive)
    monkeypatch.setattr(drives, "held", held)
    monkeypatch.setattr(drives.grouping.Run, "measure", measure)
    assert BENCHMARK.run(tried, ["drives"]) == []
    found = record.load(tried.results)
    fujitsu, intel, second = (folder for _, folder in made)
    disk, source = tried.options.scratch[0], large.generated(tried).folder
    setups = [(source, disk), (source, intel), (intel, intel), (intel, second), (fujitsu, intel)]
    assert at_work == [(*setup, 3) for setup in setups for _ in POLICIES]
    assert rates == [(fujitsu, Rates(68, 53)), (intel, Rates(220, 66)), (second, Rates(220, 66))]
    sizes = [n_bytes for n_bytes, _ in made]
    assert sizes[1] > sizes[0] > 2 * 3000 * 128
    assert sizes[1] > sizes[2] > 3000 * 128
    assert set(found["parts"]["drives"]["medians"]) == set(drives.SETUPS)
    text = BENCHMARK.render(found, "r.json")
    assert "F 68 MB/s of reads and 53 of writes" in text
    assert "| F-I-F | chunk |" in text


def test_chunk_files_of_builds_are_written_both_ways(tried: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = {"kind": "graph", "builder": "vamana", "shard_vectors": 200, "R": 8, "L": 16, "pq_bytes": 8}
    monkeypatch.setattr(chunks, "BUILDS", {"shards": shards, "inverted lists": {"kind": "ivf", "lists": 4}})
    tried.sets["sift1m"] = Dataset(tried.out / "more")
    generate(tried.sets["sift1m"].folder, 1000, 5, 1)
    assert BENCHMARK.run(tried, ["chunks"]) == []
    found = record.load(tried.results)
    stages = {(one["build"], one["stage"]): one for one in found["parts"]["chunks"]["stages"]}
    assert {("shards", "assign"), ("shards", "build"), ("inverted lists", "pack")} <= set(stages)
    lists = stages["shards", "build"]
    assert lists["payload"] == "uint32[8]"
    assert lists["bytes"]["zstd"] < lists["bytes"]["none"]
    assert lists["to_raw"]["bytes"]["value"] == lists["bytes"]["zstd"] / lists["bytes"]["none"]
    assert lists["files"] == lists["of_files"] > 1
    assert lists["records"] >= 1000
    assert not (tried.out / "chunks").exists()
    assert "| shards | build |" in BENCHMARK.render(found, "r.json")
