"""A build killed with SIGKILL in any stage and run again gives the bytes of an undisturbed build."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.test_pipeline_build import clustered, data_files

from indexmill.pipeline.publish import check_output

# Kills its own process in the named stage: with its files written and not yet published, with a file half written
# ("half-STAGE"), or before the n-th rename of the publish ("rename-n").
BUILD = """
import os, signal, sys
from pathlib import Path
import indexmill.pipeline.build as b
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.pipeline.store import StageStore

victim, source, out, shard = sys.argv[1:5]
make = StageStore.make

def make_or_die(self, stage, key, write, resume=False):
    def write_then_die(directory):
        write(directory)
        os.kill(os.getpid(), signal.SIGKILL)
    def half_write(directory):
        for name in ("vectors.npy", "neighbours.npy", "graph.imx", "000000.arrow.99.partial"):
            (directory / name).write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    chosen = {stage: write_then_die, "half-" + stage: half_write}.get(victim, write)
    return make(self, stage, key, chosen, resume)

StageStore.make = make_or_die
if victim.startswith("rename-"):
    publish, rename, left = b.publish, Path.rename, int(victim[7:])
    def count_renames(self, target):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(self, target)
    def publish_and_die(*arguments, **keywords):
        Path.rename = count_renames
        publish(*arguments, **keywords)
    b.publish = publish_and_die
if victim == "publish":
    b.publish = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
p = Parameters(R=8, L=20, pq_bytes=4, shard_vectors=int(shard) or None)
b.run_build(BuildSpec(input=[source], out=out, workers=1, parameters=p, force="--force" in sys.argv))
"""

WHOLE = ["ingest", "sample", "cluster", "build", "encode", "order", "entries", "navigation"]
WHOLE += ["emit", "certify", "publish"]
SHARDED = ["assign", "build", "union", "merge"]


def run(victim: str, source: Path, out: Path, shard: int, *flags: str) -> int:
    arguments = [sys.executable, "-c", BUILD, victim, str(source), str(out), str(shard), *flags]
    return subprocess.run(arguments, capture_output=True, check=False).returncode


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kill") / "v.npy"
    np.save(path, clustered(700, 8))
    return path


@pytest.mark.parametrize(("shard", "stages"), [(0, WHOLE), (300, SHARDED)])
def test_killed_in_every_stage_and_run_again(
    source: Path, tmp_path: Path, shard: int, stages: list[str]
) -> None:
    assert run("none", source, tmp_path / "whole", shard) == 0
    for stage in stages:  # each run gets one stage further than the one before
        assert run(stage, source, tmp_path / "killed", shard) == -signal.SIGKILL, stage
        assert not (tmp_path / "killed").exists()
    assert run("none", source, tmp_path / "killed", shard) == 0
    assert data_files(tmp_path / "killed") == data_files(tmp_path / "whole")
    assert not os.path.exists(f"{tmp_path / 'killed'}.work")


@pytest.mark.parametrize(("shard", "stages"), [(0, ["ingest", "build", "emit"]), (300, ["assign", "merge"])])
def test_killed_with_files_half_written(source: Path, tmp_path: Path, shard: int, stages: list[str]) -> None:
    assert run("none", source, tmp_path / "whole", shard) == 0
    for stage in stages:
        assert run(f"half-{stage}", source, tmp_path / "killed", shard) == -signal.SIGKILL, stage
    assert run("none", source, tmp_path / "killed", shard) == 0
    assert data_files(tmp_path / "killed") == data_files(tmp_path / "whole")


def test_killed_while_replacing_an_index_loses_neither(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "ix"
    assert run("none", source, out, 300) == 0
    old = data_files(out)
    assert run("none", source, tmp_path / "whole", 0) == 0
    renames = 0
    while run(f"rename-{renames + 1}", source, out, 0, "--force") == -signal.SIGKILL:
        renames += 1
        check_output(out, force=True)  # what any later build does first
        assert data_files(out) == old
    assert renames == 2  # the old index aside, the new one into place
    assert data_files(out) == data_files(tmp_path / "whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ix", "whole"]


def test_killed_between_two_tasks_keeps_the_finished_one(source: Path, tmp_path: Path) -> None:
    script = BUILD.replace(
        "b.run_build(",
        """
calls = []
write_file = b.write_file
def count(*a, **k):
    calls.append(a[2])
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    write_file(*a, **k)
if victim == "third-task":
    b.write_file = count
b.run_build(""",
    )
    for victim, code in (("third-task", -signal.SIGKILL), ("none", 0)):
        arguments = [sys.executable, "-c", script, victim, str(source), str(tmp_path / "ix"), "300"]
        assert subprocess.run(arguments, capture_output=True, check=False).returncode == code
        left = list(tmp_path.glob("ix.work/*.partial/*"))
        assert bool(left) == (victim == "third-task")
    assert run("none", source, tmp_path / "whole", 300) == 0
    assert data_files(tmp_path / "ix") == data_files(tmp_path / "whole")
