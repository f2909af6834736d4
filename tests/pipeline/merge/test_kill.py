"""A merge of graphs killed with SIGKILL while it publishes leaves the old generation or the new one."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.append import assert_sound, build, points
from tests.support.indexes.builds import data_files
from tests.support.processes.forks import run_forked

import indexmill

pytestmark = pytest.mark.kill

MERGE = """
import sys
import indexmill
indexmill.merge(sys.argv[1], sys.argv[2], workers=1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two graphs with deletions, and the undisturbed result."""
    path = tmp_path_factory.mktemp("kill")
    for name, n in (("old", 300), ("other", 200)):
        build(path / name, points(n, n))
        indexmill.delete(path / name, np.arange(0, n, 4), by="vector")
    indexmill.merge(path / "old", path / "other", out=path / "whole")
    return path


@pytest.mark.parametrize(
    ("place", "result"),
    [
        ("publish-copied", "old"),
        ("publish-sealed", "old"),
        ("publish-aside", "whole"),
        ("publish-done", "whole"),
    ],
)
def test_killed_while_publishing_and_run_again(folder: Path, tmp_path: Path, place: str, result: str) -> None:
    index = shutil.copytree(folder / "old", tmp_path / "ix")
    other = data_files(folder / "other")
    assert run_forked(MERGE, index, folder / "other", failpoint=place).returncode == -signal.SIGKILL
    assert data_files(index) == data_files(folder / result)
    assert data_files(folder / "other") == other
    assert_sound(index)
    if result == "old":
        assert run_forked(MERGE, index, folder / "other").returncode == 0
        assert data_files(index) == data_files(folder / "whole")
    else:
        indexmill.gc(index, 9)
    assert [path.name for path in tmp_path.iterdir()] == ["ix"]
    indexmill.rollback(index)
    assert data_files(index)["graph.imx"] == data_files(folder / "old")["graph.imx"]
    assert_sound(index)
