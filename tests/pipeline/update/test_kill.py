"""An update killed with SIGKILL leaves the index as it was, or the new one; run again, it applies nothing twice."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from tests.support.cli import run_json
from tests.support.indexes.append import build, points
from tests.support.indexes.builds import data_files
from tests.support.indexes.deleted import KINDS, NAMES, VECTORS
from tests.support.processes.forks import run_forked
from tests.support.progress import Stages

import indexmill
from indexmill.jobs.updatefile import given_to, update_spec
from indexmill.pipeline.update.run import run_update

pytestmark = pytest.mark.kill

UPDATE = """
import sys
from pathlib import Path
from indexmill.jobs.updatefile import given_to, update_spec
from indexmill.pipeline.update.run import run_update

spec = update_spec(Path(sys.argv[1]), {})
run_update(spec, given_to(spec))
"""
#: Places where the job is killed, in their order, and whether the index is the new one then.
KILLED = {
    "delete-done": False,
    "append-done": False,
    "repair-done": False,
    "compact-done": False,
    "publish-copied:4": False,
    "publish-done:4": True,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index, what happens to it, and the undisturbed result."""
    path = tmp_path_factory.mktemp("kill")
    build(path / "ix", points(500, 1))
    np.save(path / "more.npy", points(100, 2))
    np.save(path / "gone.npy", np.arange(20))
    (path / "job.toml").write_text(
        'base = "ix"\nadd = "more.npy"\ndelete = "gone.npy"\ncompact = true\nworkers = 1\n'
    )
    run_json("build", path / "job.toml", "--out", path / "whole")
    return path


@pytest.mark.parametrize("kind", ["graph", "ivf"])
def test_a_compaction_that_was_published_is_not_refused_when_it_runs_again(kind: str, tmp_path: Path) -> None:
    """Its ids are not there any more, and what the kill left beside the index goes."""
    index = tmp_path / "ix"
    indexmill.build(VECTORS, index, ids=NAMES, workers=1, **KINDS[kind])
    (tmp_path / "gone.txt").write_text("\n".join(NAMES[:20]))
    job = tmp_path / "job.toml"
    job.write_text('base = "ix"\ndelete = "gone.txt"\ncompact = true\nworkers = 1\n')
    assert run_forked(UPDATE, str(job), failpoint="publish-done:3").returncode == -signal.SIGKILL
    new = data_files(index)
    assert (tmp_path / ".ix.indexmill-new").exists()
    again = run_json("build", job)
    assert (again["done_before"], again["steps"]) == (True, [])
    assert data_files(index) == new
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gone.txt", "ix", "job.toml"]
    indexmill.delete(index, NAMES[20:22])
    (tmp_path / "gone.txt").write_text(NAMES[22])
    assert run_json("build", job)["steps"][1]["removed"] == 3


@pytest.mark.parametrize(("kind", "stage"), [("ivf", "lists"), ("lsh", "tables")])
def test_a_merge_and_a_compaction_of_a_killed_job_resume_within(
    kind: str, stage: str, tmp_path: Path
) -> None:
    names = [f"other-{i}" for i in range(30)]
    for name, rows, ids in (("ix", VECTORS, NAMES), ("other", VECTORS[:30], names)):
        indexmill.build(rows, tmp_path / name, ids=ids, workers=1, **KINDS[kind])
    (tmp_path / "gone.txt").write_text("\n".join(names[:5]))
    job = tmp_path / "job.toml"
    job.write_text('base = ["ix", "other"]\ndelete = "gone.txt"\ncompact = true\nworkers = 1\n')
    run_json("build", job, "--out", tmp_path / "whole")
    for place in (f"{stage}-done", f"{stage}-done", "certify-begun"):  # of the merge, and of the compaction
        assert run_forked(UPDATE, str(job), failpoint=place).returncode == -signal.SIGKILL, place
    made, spec = Stages(), update_spec(job, {})
    run_update(spec, given_to(spec), made)
    assert made.made == ["compact certify", "compact publish", "publish"]
    assert data_files(tmp_path / "ix") == data_files(tmp_path / "whole")


@pytest.mark.parametrize("place", list(KILLED))
def test_a_killed_job_resumes_and_adds_once(place: str, folder: Path, tmp_path: Path) -> None:
    for name in ("ix", "more.npy", "gone.npy", "job.toml"):
        source = folder / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, tmp_path / name)
    index = tmp_path / "ix"
    assert run_forked(UPDATE, str(tmp_path / "job.toml"), failpoint=place).returncode == -signal.SIGKILL
    new = data_files(folder / "whole")
    assert data_files(index) == (new if KILLED[place] else data_files(folder / "ix"))
    status = run_json("status", index)
    assert status["state"] == "stopped"
    again = run_json("build", tmp_path / "job.toml")
    assert again["done_before"] is KILLED[place]
    assert data_files(index) == new
    assert not (tmp_path / ".ix.indexmill-job").exists()
    assert json.loads((index / "manifest.json").read_text())["input"]["n_vectors"] == 580
    assert run_json("build", tmp_path / "job.toml")["done_before"]
