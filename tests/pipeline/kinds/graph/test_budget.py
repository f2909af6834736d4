"""A build keeps to its memory budget, as measured from outside and by the kernel, and stops cleanly on a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.builds import data_files
from tests.support.processes.forks import run_command

from indexmill.jobs.bench.common import cgroup
from indexmill.jobs.bench.common.cgroup import Group, NoLimits
from indexmill.pipeline.mill.peak import PeakMemory

pytestmark = pytest.mark.memory

MIB = 2**20
BUDGET = 340 * MIB
#: Bytes of the kernel's limit for page cache, which a budget does not count, and for libraries' code.
CACHE = 200 * MIB
OPTIONS = [
    "--shard-vectors",
    "9000",
    "-R",
    "16",
    "-L",
    "24",
    "--pq-bytes",
    "8",
    "--entries",
    "64",
    "--sample-vectors",
    "5000",
]
#: Nodes of two pages.
ON_PAGE = ("--codes-on-page", "-R", "100", "--pq-bytes", "64", "--node-dtype", "sq8")
#: Of a smaller file: as many shards, each quick to build.
SHARDS = ("--shard-vectors", "3000")


def clusters_in(folder: Path, n: int, dim: int) -> Path:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(50, dim)) * 3
    vectors = centres[rng.integers(0, 50, n)] + rng.normal(size=(n, dim))
    np.save(folder / "v.npy", vectors.astype(np.float32))
    return folder / "v.npy"


@pytest.fixture(scope="module")
def source(disk: Path) -> Path:
    return clusters_in(Path(tempfile.mkdtemp(dir=disk)), 21_000, 256)


def options(source: Path, out: Path, *more: str) -> list[str]:
    return ["build", "--input", str(source), "--out", str(out), "--memory", str(BUDGET), *OPTIONS, *more]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "indexmill.jobs.cli.main", *arguments]


@pytest.fixture
def limited() -> Iterator[Group]:
    try:
        with cgroup.memory_limit(BUDGET + CACHE) as group:
            yield group
    except NoLimits as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("more", [(), ON_PAGE], ids=["codes in memory", "codes on the page"])
def test_a_build_stays_within_its_budget(source: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    # What a process of its own compiles first is of no budget.
    assert run_command(*options(source, tmp_path / "compiled", *more)).returncode == 0
    with (
        subprocess.Popen(command(*options(source, tmp_path / "ix", *more))) as build,
        PeakMemory(build.pid, 0.02) as peak,
    ):
        build.wait()
    assert build.returncode == 0
    manifest = json.loads((tmp_path / "ix" / "manifest.json").read_text())
    assert len(manifest["graph"]["shards"]) >= 3
    assert 100 * MIB < peak.bytes <= 1.05 * BUDGET
    told = json.loads((tmp_path / "ix" / "run.json").read_text())["peak_memory_bytes"]
    assert (
        0.5 * peak.bytes <= told <= 1.1 * peak.bytes
    )  # compiling a kernel keeps the build's own sampler waiting


def test_a_build_lives_under_a_limit_of_the_kernel(source: Path, tmp_path: Path, limited: Group) -> None:
    assert subprocess.run(limited.wrap(command(*options(source, tmp_path / "ix")))).returncode == 0
    assert limited.pressure().oom_kills == 0


@pytest.fixture(scope="module")
def small(disk: Path) -> Path:
    """A file of vectors, and beside it the index that an undisturbed build of them makes."""
    source = clusters_in(Path(tempfile.mkdtemp(dir=disk)), 9000, 64)
    assert run_command(*options(source, source.with_name("whole"), *SHARDS)).returncode == 0
    return source


@pytest.mark.kill
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_a_build_cleanly_and_the_next_one_goes_on(
    small: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    out, work = tmp_path / "ix", tmp_path / "ix.work"
    arguments = options(small, out, *SHARDS)

    def heed_interrupts() -> None:  # a shell in the background ignores SIGINT, and children inherit that
        signal.signal(signal.SIGINT, signal.default_int_handler)

    build = subprocess.run(
        command(*arguments), preexec_fn=heed_interrupts, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "INDEXMILL_FAILPOINT": f"task-written:3={number.name}"},
    )  # fmt: skip
    last_written = max(path.stat().st_mtime for path in work.glob("build-*/*.chunk*"))
    assert time.time() - last_written < 10
    assert build.returncode == code
    assert "resume it where it stopped" in build.stderr
    assert "Traceback" not in build.stderr
    assert not out.exists()
    finished = {p: p.stat().st_mtime_ns for p in work.glob("*/stage.json")}
    assert len(finished) >= 3
    rerun = run_command(*arguments)
    assert rerun.returncode == 0
    assert rerun.stderr.count("reused") >= 2
    assert data_files(out) == data_files(small.with_name("whole"))
    assert os.listdir(tmp_path) == ["ix"]
