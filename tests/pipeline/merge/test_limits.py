"""Memory and scratch space of a merge of indexes with deletions."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.append import build, points
from tests.support.processes.forks import run_forked

import indexmill
from indexmill.formats.errors import BudgetError
from indexmill.pipeline.append import parts

MERGE = """
import sys
from pathlib import Path
import indexmill
folder = Path(sys.argv[1])
indexmill.merge(folder / "a", folder / "b", workers=1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two indexes, both with deletions."""
    for name, n in (("a", 500), ("b", 300)):
        build(tmp_path / name, points(n, n))
        indexmill.delete(tmp_path / name, np.arange(0, n, 4), by="vector")
    return tmp_path


def test_memory_is_refused_by_what_remains_before_anything_is_compacted(folder: Path) -> None:
    with pytest.raises(BudgetError, match=r"375 vectors and 225 more take"):
        indexmill.merge(folder / "a", folder / "b", memory=1000)


@pytest.mark.kill
def test_a_compaction_leaves_nothing_but_its_result(folder: Path) -> None:
    assert run_forked(MERGE, folder, failpoint="publish-copied").returncode == -signal.SIGKILL
    for name in ("left-0", "left-1"):
        stages = [path for path in (folder / ".a.indexmill-scratch" / name).iterdir() if path.is_dir()]
        assert [path.name.partition("-")[0] for path in stages] == ["emit"]


def test_room_for_all_compactions_is_asked_for_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_bytes = sum(path.stat().st_size for path in (folder / "a").iterdir())
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=index_bytes))
    with pytest.raises(BudgetError, match=r"scratch: .*the merge needs [\d,]+ bytes there"):
        indexmill.merge(folder / "a", folder / "b")
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def test_an_order_of_everything_may_use_the_memory_that_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    available, order_threads = [], parts.order_threads

    def seen(*arguments: Any, divided: bool) -> int:
        available.append(arguments[5])
        return order_threads(*arguments, divided=divided)

    monkeypatch.setattr(parts, "order_threads", seen)
    indexmill.merge(folder / "a", folder / "b", memory="8GiB")
    assert len(available) == 1
    assert 7 << 30 < available[0] < 8 << 30
