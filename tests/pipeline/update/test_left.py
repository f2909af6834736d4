"""Files that a failed job leaves, and the runs that remove them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cli import run_json
from tests.support.indexes.deleted import KINDS, NAMES, VECTORS

import indexmill
from indexmill.formats.errors import InputError
from indexmill.jobs.updatefile import given_to
from indexmill.pipeline.update.run import run_update
from indexmill.pipeline.update.spec import UpdateSpec


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index on which a job failed in its second step."""
    path = tmp_path / "ix"
    indexmill.build(VECTORS, path, ids=NAMES, workers=1, **KINDS["ivf"])
    fail(path, tmp_path / "work")
    fail(path, None)
    return path


def fail(index: Path, work: Path | None) -> None:
    gone = index.with_name("gone.txt")
    gone.write_text("\n".join(NAMES))
    keys = {
        "base": str(index),
        "delete": str(gone),
        "compact": True,
        "work": None if work is None else str(work),
    }
    spec = UpdateSpec.model_validate(keys)
    with pytest.raises(InputError, match="all 120 vectors were deleted"):
        run_update(spec, given_to(spec))


def left(index: Path) -> list[str]:
    return sorted(path.name for path in index.parent.rglob("*indexmill-job"))


def test_gc_removes_what_a_job_left_once_the_index_is_another(index: Path) -> None:
    work = index.with_name("work")
    assert len(left(index)) == 2
    assert indexmill.gc(index, 9, work=work)["removed"] == []
    indexmill.delete(index, NAMES[:2])
    report = run_json("gc", index, "--keep-generations", 9)
    assert report["removed"] == [".ix.indexmill-job"]
    assert report["bytes"] > 0
    assert len(left(index)) == 1
    indexmill.gc(index, 9, work=work)
    assert left(index) == []


def test_gc_removes_a_folder_that_says_nothing_of_its_index(index: Path) -> None:
    for path in index.parent.glob(".ix.indexmill-job/replaced.json"):
        path.write_text("[")
    assert indexmill.gc(index, 9)["removed"] == [".ix.indexmill-job"]


def test_gc_removes_all_that_a_job_left_whose_output_is_not_there(index: Path) -> None:
    index.with_name(".ix.indexmill-job").rename(index.with_name(".new.indexmill-job"))
    assert indexmill.gc(index.with_name("new"))["removed"] == [".new.indexmill-job"]


def test_a_deletion_in_place_removes_what_a_job_left(index: Path) -> None:
    gone = index.with_name("gone.txt")
    gone.write_text(NAMES[3])
    spec = UpdateSpec.model_validate({"base": str(index), "delete": str(gone)})
    assert run_update(spec, given_to(spec)).steps[0]["deleted"] == 1
    assert len(left(index)) == 1  # that in another work folder
