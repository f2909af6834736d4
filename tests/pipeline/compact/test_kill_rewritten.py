"""A killed compaction or merge of lists or tables leaves the old generation or the new one, and the next resumes."""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.files.verify import verify_index
from tests.support.indexes.append import points, run_record
from tests.support.indexes.builds import data_files
from tests.support.processes.forks import run_forked

import indexmill
from indexmill.formats.errors import BudgetError

pytestmark = pytest.mark.kill

# Where `left` is not 0, names cannot be exchanged, and the process kills itself before so many renames of its publish.
RUN = """
import os, signal, sys
from pathlib import Path
import indexmill
import indexmill.pipeline.generations.run as generation
import indexmill.pipeline.mill.publish

command, out, left, *indexes = sys.argv[1:]
left = int(left)
if left:
    publish, rename = generation.publish, Path.rename
    def count_renames(self, target):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(self, target)
    def publish_and_die(*arguments, **keywords):
        Path.rename = count_renames
        indexmill.pipeline.mill.publish.exchange = lambda first, second: False
        publish(*arguments, **keywords)
    generation.publish = publish_and_die
getattr(indexmill, command)(*indexes, out=out or None, force=bool(out), workers=1)
"""
KINDS: dict[str, dict[str, Any]] = {
    "ivf": {"codec": "rabitq", "code_bits": 2, "keep_vectors": True, "batch_vectors": 200},
    "lsh": {"n_functions": 5, "n_tables": 4, "n_radii": 3, "first_radius": 1.5, "hash_bits": 3},
}
#: The stage that writes the files.
WRITES = {"ivf": "lists", "lsh": "tables"}


@dataclass(frozen=True)
class Runs:
    """Indexes of a kind: one with deletions, another with its lists or functions, a third one; undisturbed results."""

    folder: Path
    kind: str

    def given(self, command: str, index: Path) -> list[Path]:
        """The indexes of a command on `index`."""
        others = {"compact": [], "merge": ["equal"], "merge-other": ["equal", "other"]}
        return [index, *(self.folder / name for name in others[command])]

    def run(self, command: str, index: Path, failpoint: str = "", out: object = "", renames: int = 0) -> int:
        """Run a command on a copy of the index; return its exit code."""
        name = command.partition("-")[0]
        done = run_forked(RUN, name, out, renames, *self.given(command, index), failpoint=failpoint)
        assert done.returncode in (0, -signal.SIGKILL), (failpoint, done.stderr)
        return done.returncode

    def kill(self, command: str, index: Path, failpoint: str, result: str = "old", renames: int = 0) -> None:
        """Kill a command; the index is then that `result`."""
        assert self.run(command, index, failpoint, renames=renames) == -signal.SIGKILL, failpoint
        if not renames:
            assert data_files(index) == data_files(self.folder / result), failpoint

    def copy(self, folder: Path) -> Path:
        return shutil.copytree(self.folder / "old", folder / "ix")

    def stages(self, command: str) -> list[str]:
        """The stages of a command, a stage as often as it comes."""
        found = ["assign"] * (command == "merge-other" and self.kind == "ivf")
        return [*found, WRITES[self.kind], "seal", *["certify"] * (command == "compact")]


@pytest.fixture(scope="module", params=KINDS)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    path, kind = tmp_path_factory.mktemp("kill"), str(request.param)
    how: dict[str, Any] = {**KINDS[kind], "kind": kind, "workers": 1}
    other = {**how, "seed": 7}
    if kind == "ivf":
        np.save(path / "centroids.npy", points(500, 1)[::100])
        how["centroids"], other["lists"] = str(path / "centroids.npy"), 4
    indexmill.build(points(500, 1), path / "old", ids=np.arange(500), **how)
    indexmill.build(points(300, 2), path / "equal", ids=np.arange(500, 800), **how)
    indexmill.build(points(250, 3), path / "other", ids=np.arange(800, 1050), **other)
    indexmill.delete(path / "old", np.arange(0, 500, 4))
    made = Runs(path, kind)
    indexmill.compact(path / "old", out=path / "compact")
    for command in ("merge", "merge-other"):
        indexmill.merge(*made.given(command, path / "old"), out=path / command)
    return made


COMMANDS = pytest.mark.parametrize("command", ["compact", "merge", "merge-other"])


@COMMANDS
def test_killed_in_every_stage_and_resumed(runs: Runs, tmp_path: Path, command: str) -> None:
    index, stages = runs.copy(tmp_path), runs.stages(command)
    for stage in stages:
        for place in ("begun", "written", "done"):
            runs.kill(command, index, f"{stage}-{place}")
    for failpoint in ("publish-copied", "publish-sealed"):
        runs.kill(command, index, failpoint)
    for rename in (1, 2):  # the old generation aside, the new one into place
        runs.kill(command, index, "", renames=rename)
        assert index.exists() == (rename == 1)
    assert runs.run(command, index) == 0
    assert data_files(index) == data_files(runs.folder / command)
    seconds = run_record(index)["seconds"]
    assert {stage: seconds.get(stage, 0) for stage in stages} == dict.fromkeys(stages, 0)  # by runs before
    assert [path.name for path in tmp_path.iterdir()] == ["ix"]
    assert verify_index(index) == []


@COMMANDS
def test_killed_after_it_published_it_is_the_new_generation(runs: Runs, tmp_path: Path, command: str) -> None:
    index = runs.copy(tmp_path)
    runs.kill(command, index, "publish-aside", command)
    assert verify_index(index) == []
    for given in runs.given(command, index)[1:]:
        assert verify_index(given) == []


@COMMANDS
def test_a_file_that_is_whole_is_never_written_again(runs: Runs, tmp_path: Path, command: str) -> None:
    """Each run is killed once another file is whole: there are as many runs as files that are not a companion."""
    index, kills = runs.copy(tmp_path), 0
    while runs.run(command, index, "task-done"):
        kills += 1
        assert data_files(index) == data_files(runs.folder / "old"), kills
    assert data_files(index) == data_files(runs.folder / command)
    files = {path.name for path in index.iterdir() if path.suffix in (".imx", ".parquet")}
    assert kills == len(files - {"buckets.imx"})


@COMMANDS
def test_killed_while_a_file_is_written_that_file_is_written_again(
    runs: Runs, tmp_path: Path, command: str
) -> None:
    index, kills = runs.copy(tmp_path), 0
    for number in range(1, 4):  # each time another one is whole
        if runs.run(command, index, f"task-written:{number}"):
            kills += 1
    assert kills > 1
    assert runs.run(command, index) == 0
    assert data_files(index) == data_files(runs.folder / command)
    assert [path.name for path in tmp_path.iterdir()] == ["ix"]


@pytest.mark.parametrize("harm", ["damaged", "missing"])
@pytest.mark.parametrize("command", ["compact", "merge"])
def test_a_file_of_a_finished_stage_that_is_lost_is_written_again(
    runs: Runs, tmp_path: Path, command: str, harm: str
) -> None:
    index = runs.copy(tmp_path)
    runs.kill(command, index, f"{WRITES[runs.kind]}-done" if harm == "damaged" else "seal-done")
    (stage,) = (tmp_path / ".ix.indexmill-compact").glob(f"{WRITES[runs.kind]}-*")
    lost = stage / {"ivf": "batch-000001.imx", "lsh": "buckets.imx"}[runs.kind]
    if harm == "missing":
        lost.unlink()
    else:
        with open(lost, "r+b") as file:
            file.seek(1000)
            file.write(b"damage")
    assert runs.run(command, index) == 0
    assert data_files(index) == data_files(runs.folder / command)


def test_stages_of_another_generation_are_not_reused(runs: Runs, tmp_path: Path) -> None:
    index = runs.copy(tmp_path)
    runs.kill("compact", index, f"{WRITES[runs.kind]}-done")
    indexmill.delete(index, np.arange(1, 500, 4))
    assert len(indexmill.compact(index)) == 250
    assert run_record(index)["seconds"][WRITES[runs.kind]] > 0
    assert verify_index(index) == []
    assert [path.name for path in tmp_path.iterdir()] == ["ix"]


def test_a_merge_does_not_resume_a_compaction(runs: Runs, tmp_path: Path) -> None:
    index = runs.copy(tmp_path)
    runs.kill("compact", index, "seal-done")
    assert runs.run("merge", index) == 0
    assert data_files(index) == data_files(runs.folder / "merge")
    assert [path.name for path in tmp_path.iterdir()] == ["ix"]


@COMMANDS
def test_killed_while_it_removes_its_stages_and_run_again(runs: Runs, tmp_path: Path, command: str) -> None:
    """Elsewhere: the run after it finds stages of its own, of which some are gone."""
    out, passes = tmp_path / "out", 0
    while runs.run(command, runs.folder / "old", f"store-removing:{passes + 1}", out):
        passes += 1
        assert data_files(out) == data_files(runs.folder / command), passes
    assert passes > 2
    assert data_files(out) == data_files(runs.folder / command)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("command", ["compact", "merge"])
def test_what_a_killed_run_can_resume_with_outlives_gc(runs: Runs, tmp_path: Path, command: str) -> None:
    index = runs.copy(tmp_path)
    runs.kill(command, index, "seal-done")
    indexmill.gc(index)
    assert runs.run(command, index) == 0
    assert run_record(index)["seconds"]["seal"] == 0
    assert data_files(index) == data_files(runs.folder / command)


def test_what_a_killed_merge_of_an_index_without_deletions_left_outlives_gc(
    runs: Runs, tmp_path: Path
) -> None:
    index = shutil.copytree(runs.folder / "equal", tmp_path / "ix")
    merge = (RUN, "merge", "", 0, index, runs.folder / "old")
    assert run_forked(*merge, failpoint="seal-done").returncode == -signal.SIGKILL
    indexmill.gc(index)
    assert run_forked(*merge).returncode == 0
    assert run_record(index)["seconds"]["seal"] == 0
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_gc_removes_what_a_killed_run_left_once_the_index_is_another(runs: Runs, tmp_path: Path) -> None:
    index = runs.copy(tmp_path)
    runs.kill("compact", index, "seal-done")
    indexmill.delete(index, [1])
    assert ".ix.indexmill-compact" in indexmill.gc(index)["removed"]
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_a_run_that_is_refused_does_not_keep_what_one_before_left_from_gc(runs: Runs, tmp_path: Path) -> None:
    index = runs.copy(tmp_path)
    runs.kill("merge", index, "seal-done")
    indexmill.delete(index, [1])
    with pytest.raises(BudgetError):
        indexmill.compact(index, memory=1000)
    assert ".ix.indexmill-compact" in indexmill.gc(index)["removed"]
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_what_a_killed_fold_of_added_tables_left_outlives_gc(tmp_path: Path) -> None:
    index = tmp_path / "ix"
    indexmill.build(points(500, 1), index, kind="lsh", workers=1, **KINDS["lsh"])
    indexmill.append(index, points(20, 2), workers=1)
    assert (index / "added-tables.imx").exists()
    assert run_forked(RUN, "compact", "", 0, index, failpoint="seal-done").returncode == -signal.SIGKILL
    indexmill.gc(index)
    indexmill.compact(index)
    assert run_record(index)["seconds"]["seal"] == 0
    assert not (index / "added-tables.imx").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]
