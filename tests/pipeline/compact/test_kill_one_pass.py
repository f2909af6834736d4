"""A compaction or merge of lists or tables, killed with SIGKILL anywhere, leaves the old generation or the new one."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.files.verify import verify_index
from tests.support.indexes.append import points
from tests.support.indexes.builds import data_files
from tests.support.processes.forks import run_forked

import indexmill

pytestmark = pytest.mark.kill

# Kills its own process after the named step of the run, or before the n-th rename of a publish on a file system that
# cannot exchange two names ("rename-n").
RUN = """
import os, signal, sys
from pathlib import Path
import indexmill
import indexmill.pipeline.compact.lists as a
import indexmill.pipeline.compact.tables as b
import indexmill.pipeline.generations.run as generation
import indexmill.pipeline.merge.lists as c
import indexmill.pipeline.merge.tables as d
import indexmill.pipeline.mill.publish

command, victim, *indexes = sys.argv[1:]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def then_die(function):
    def run(*arguments, **keywords):
        function(*arguments, **keywords)
        die()
    return run

for holder in (a, b, c, d, a.RewrittenLists, b.NewTables):
    for name in (victim, f"lists_{victim}", f"tables_{victim}"):
        if hasattr(holder, name):
            setattr(holder, name, then_die(getattr(holder, name)))
if victim.startswith("rename-"):
    publish, rename, left = generation.publish, Path.rename, int(victim[7:])
    def count_renames(self, target):
        global left
        left -= 1
        if left == 0:
            die()
        return rename(self, target)
    def publish_and_die(*arguments, **keywords):
        Path.rename = count_renames
        indexmill.pipeline.mill.publish.exchange = lambda first, second: False
        publish(*arguments, **keywords)
    generation.publish = publish_and_die
getattr(indexmill, command)(*indexes, workers=1)
"""
KINDS: dict[str, dict[str, Any]] = {
    "ivf": {"lists": 5, "batch_vectors": 200},
    "lsh": {"n_functions": 5, "n_tables": 4, "n_radii": 3, "first_radius": 1.5, "hash_bits": 3},
}


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with deletions, another with its centroids or functions, and both undisturbed results."""
    path, kind = tmp_path_factory.mktemp("kill"), str(request.param)
    how, old, other = KINDS[kind] | {"kind": kind, "workers": 1}, path / "old", path / "other"
    if kind == "ivf":
        np.save(path / "centroids.npy", points(500, 1)[::100])
        how = {key: value for key, value in how.items() if key != "lists"}
        how["centroids"] = str(path / "centroids.npy")
    indexmill.build(points(500, 1), old, ids=np.arange(500), **how)
    indexmill.build(points(300, 2), other, ids=np.arange(500, 800), **how)
    indexmill.delete(old, np.arange(0, 500, 4))
    indexmill.compact(old, out=path / "compact")
    indexmill.merge(old, other, out=path / "merge")
    return path


@pytest.mark.parametrize("command", ["compact", "merge"])
def test_killed_anywhere_and_run_again(folder: Path, tmp_path: Path, command: str) -> None:
    index = tmp_path / "ix"
    given = [index, *([folder / "other"] if command == "merge" else [])]
    old, whole, other = (data_files(folder / name) for name in ("old", command, "other"))

    def killed(victim: str, failpoint: str = "") -> None:
        run = run_forked(RUN, command, victim, *given, failpoint=failpoint)
        assert run.returncode == -signal.SIGKILL, (victim, failpoint, run.stderr)

    shutil.copytree(folder / "old", index)
    for step in ("check_free", "write", "seal_files", *["certificate"] * (command == "compact")):
        killed(step)
        assert data_files(index) == old, step
    for failpoint in ("publish-copied", "publish-sealed"):
        killed("nothing", failpoint)
        assert data_files(index) == old, failpoint
    for rename in ("rename-1", "rename-2"):  # the old generation aside, the new one into place
        killed(rename)
        assert index.exists() == (rename == "rename-1")
    assert run_forked(RUN, command, "nothing", *given).returncode == 0
    assert data_files(index) == whole
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]
    shutil.rmtree(index)
    shutil.copytree(folder / "old", index)
    killed("nothing", "publish-aside")
    assert data_files(index) == whole
    assert verify_index(index) == []
    assert data_files(folder / "other") == other
