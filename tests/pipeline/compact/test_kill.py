"""A compaction killed with SIGKILL anywhere leaves the old generation or the new one, and the next one resumes."""

from __future__ import annotations

import shutil
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.append import assert_sound, build, points, run_record
from tests.support.indexes.builds import data_files
from tests.support.processes.forks import run_forked

import indexmill
from indexmill.builders.vamana import repair
from indexmill.formats.index import ids as formats_ids
from indexmill.pipeline.compact import recipe
from indexmill.pipeline.generations import opened

pytestmark = pytest.mark.kill

COMPACT = """
import sys
import indexmill
indexmill.compact(sys.argv[1], workers=1)
"""
STAGES = ("unpack", "repair", "order", "starts", "emit", "certify")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with deletions, and the undisturbed result."""
    path = tmp_path_factory.mktemp("kill")
    build(path / "old", points(500, 1))
    indexmill.delete(path / "old", np.arange(0, 500, 4), by="vector")
    indexmill.compact(path / "old", out=path / "whole")
    return path


def test_killed_in_every_stage_and_resumed(folder: Path, tmp_path: Path) -> None:
    index = shutil.copytree(folder / "old", tmp_path / "ix")
    for stage in STAGES:
        for place in ("begun", "written", "done"):
            killed = run_forked(COMPACT, index, failpoint=f"{stage}-{place}")
            assert killed.returncode == -signal.SIGKILL, (stage, place)
            assert data_files(index) == data_files(folder / "old"), (stage, place)
    assert run_forked(COMPACT, index).returncode == 0
    assert data_files(index) == data_files(folder / "whole")
    assert run_record(index)["seconds"]["certify"] == 0  # finished by a run before
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_a_resumed_compaction_holds_no_ids_while_it_repairs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = shutil.copytree(folder / "old", tmp_path / "ix")
    assert run_forked(COMPACT, index, failpoint="unpack-done").returncode == -signal.SIGKILL
    read, held = list[weakref.ref[Any]](), list[int]()

    def ids_of(*arguments: Any) -> tuple[Any, Any]:
        ids = formats_ids.ids_of(*arguments)
        read.append(weakref.ref(ids[0]))
        return ids

    def repair_lists(*arguments: Any, **how: Any) -> int:
        held.append(sum(ids() is not None for ids in read))
        return repair.repair_lists(*arguments, **how)

    monkeypatch.setattr(opened, "ids_of", ids_of)
    monkeypatch.setattr(recipe, "repair_lists", repair_lists)
    indexmill.compact(index)
    assert read
    assert held == [0]
    assert data_files(index) == data_files(folder / "whole")


def test_killed_while_publishing_there_is_always_a_generation(folder: Path, tmp_path: Path) -> None:
    index = shutil.copytree(folder / "old", tmp_path / "ix")
    for place, result in (("publish-copied", "old"), ("publish-sealed", "old"), ("publish-aside", "whole")):
        assert run_forked(COMPACT, index, failpoint=place).returncode == -signal.SIGKILL, place
        assert data_files(index) == data_files(folder / result), place
        assert_sound(index)


def test_stages_of_another_generation_are_not_reused(folder: Path, tmp_path: Path) -> None:
    index = shutil.copytree(folder / "old", tmp_path / "ix")
    assert run_forked(COMPACT, index, failpoint="order-done").returncode == -signal.SIGKILL
    indexmill.delete(index, np.arange(1, 500, 4), by="vector")
    opened = indexmill.compact(index)
    assert len(opened) == 250
    assert_sound(index)
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


@pytest.mark.parametrize("clean", [indexmill.compact, indexmill.gc])
def test_what_a_run_killed_after_it_published_leaves_is_removed(
    folder: Path, tmp_path: Path, clean: Callable[[Path], Any]
) -> None:
    index = shutil.copytree(folder / "old", tmp_path / "ix")
    assert run_forked(COMPACT, index, failpoint="publish-done").returncode == -signal.SIGKILL
    assert data_files(index) == data_files(folder / "whole")
    assert (tmp_path / ".ix.indexmill-compact").is_dir()
    clean(index)
    assert not (tmp_path / ".ix.indexmill-compact").exists()
    assert data_files(index) == data_files(folder / "whole")


def test_what_a_killed_run_can_resume_with_outlives_gc(folder: Path, tmp_path: Path) -> None:
    index = shutil.copytree(folder / "old", tmp_path / "ix")
    assert run_forked(COMPACT, index, failpoint="order-done").returncode == -signal.SIGKILL
    indexmill.gc(index)
    indexmill.compact(index)
    assert run_record(index)["seconds"]["order"] == 0
