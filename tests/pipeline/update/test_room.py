"""Room of the steps of an update: files of an index that a step shares, and those that it copies."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.append import build, points
from tests.support.indexes.builds import data_files
from tests.support.indexes.deleted import KINDS, NAMES, VECTORS, Built, build_all

import indexmill
from indexmill.formats.errors import BudgetError
from indexmill.formats.index.manifest import read_manifest
from indexmill.jobs.updatefile import given_to
from indexmill.pipeline.update.plan import UpdatePlan, plan_update
from indexmill.pipeline.update.run import run_update
from indexmill.pipeline.update.spec import UpdateSpec


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_all(tmp_path_factory.mktemp("room"))


def spec_of(base: Any, folder: Path, **keys: Any) -> UpdateSpec:
    given = {"base": base, "out": folder / "out", "work": folder / "work", **keys}
    named = {
        key: list(map(str, value)) if isinstance(value, list) else str(value) for key, value in given.items()
    }
    return UpdateSpec.model_validate({**named, "workers": 1})


def planned(base: Any, folder: Path, **keys: Any) -> UpdatePlan:
    spec = spec_of(base, folder, **keys)
    return plan_update(spec, given_to(spec))


def bytes_of(index: Path, kind: str) -> int:
    return sum(entry.bytes for entry in read_manifest(index, (kind,)).files)


def scratch_of(plan: UpdatePlan, step: str) -> int:
    """Files of a step at its worst moment."""
    return sum(stage.scratch_bytes for name, stage in plan.stages.items() if name.startswith(f"{step} "))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ids to delete."""
    (tmp_path / "gone.txt").write_text("\n".join(NAMES[:5]))
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_a_deletion_shares_are_scratch_space(built: Built, folder: Path, kind: str) -> None:
    index, delete = built.copy(kind, folder / "ix"), folder / "gone.txt"
    size, other = bytes_of(index, kind), folder / "other"
    elsewhere = planned(index, folder, delete=delete)
    assert size < elsewhere.peak_scratch_bytes == scratch_of(elsewhere, "delete") < size + 30_000
    assert planned(index, folder, delete=delete, out=index).peak_scratch_bytes == 0
    compacted = planned(index, folder, delete=delete, out=index, compact=True)
    assert compacted.peak_scratch_bytes == scratch_of(compacted, "delete") + scratch_of(compacted, "compact")
    indexmill.build(VECTORS, other, ids=[f"other-{name}" for name in NAMES], workers=1, **KINDS[kind])
    merged, more = (planned([index, other], folder, **keys) for keys in ({}, {"delete": delete}))
    assert 0 <= more.peak_scratch_bytes - merged.peak_scratch_bytes < 30_000


def no_link(source: Path, target: Path) -> None:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@pytest.mark.parametrize("kind", KINDS)
def test_a_deletion_that_must_copy_checks_the_room(
    built: Built, folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, usage = built.copy(kind, folder / "ix"), shutil.disk_usage(folder)
    size, before = bytes_of(index, kind), data_files(index)
    spec = spec_of(index, folder, delete=folder / "gone.txt")
    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=size - 1))
    with pytest.raises(BudgetError, match=re.escape(f"the deletion needs {size:,} bytes there")):
        run_update(spec, given_to(spec))
    assert data_files(index) == before
    assert not (folder / "out").exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert run_update(spec, given_to(spec)).manifest["deleted"]["vectors"] == 5


@pytest.mark.parametrize("others", [50, 200], ids=["slots stay", "all are laid out anew"])
def test_an_append_after_a_merge_of_graphs_is_planned_as_one_to_its_result(
    others: int, tmp_path: Path
) -> None:
    rows = points(260 + others, 1)
    parts = [
        build(tmp_path / "first", rows[:250]),
        build(tmp_path / "second", rows[250:-10]),
    ]
    np.save(tmp_path / "added.npy", rows[-10:])
    together = planned(parts, tmp_path, add=tmp_path / "added.npy")
    indexmill.merge(*parts, out=tmp_path / "merged", workers=1)
    alone = planned(tmp_path / "merged", tmp_path, add=tmp_path / "added.npy")
    first = "append ingest"  # has all temporary files, which depend on how many vectors are laid out
    assert together.stages[first].scratch_bytes == alone.stages[first].scratch_bytes


def test_a_plan_says_that_a_merge_may_train_a_codebook(tmp_path: Path) -> None:
    rows = points(300, 1)
    parts = [build(tmp_path / str(at), rows[at : at + 100]) for at in (0, 100, 200)]
    few = build(tmp_path / "few", points(10, 2))
    note = planned(parts, tmp_path).note or ""
    memory = re.search(
        r"a codebook is not counted, which the merge trains with ([\d,]+) bytes of memory", note
    )
    assert memory is not None
    assert int(memory[1].replace(",", "")) > 96 << 20
    assert planned([parts[0], few], tmp_path).note is None


def test_a_plan_for_no_ids_has_the_step_that_runs(built: Built, tmp_path: Path) -> None:
    (tmp_path / "gone.txt").write_text("")
    plan = planned(built.copy("ivf", tmp_path / "ix"), tmp_path, delete=tmp_path / "gone.txt")
    assert list(plan.stages) == ["delete match"]
    assert plan.peak_scratch_bytes > 0
