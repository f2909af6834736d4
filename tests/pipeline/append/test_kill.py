"""An append killed with SIGKILL anywhere leaves the index as it was, and the next one gives the undisturbed bytes."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles.files.verify import verify_index
from tests.support.indexes.append import DIM, build, points
from tests.support.indexes.builds import data_files
from tests.support.processes.forks import run_forked

import indexmill
from indexmill.pipeline.mill.publish import check_output

pytestmark = pytest.mark.kill

# Kills its own process after the named step of an append, or before the n-th rename of a publish on a file system that
# cannot exchange two names ("rename-n").
APPEND = """
import os, signal, sys
from pathlib import Path
import indexmill
import indexmill.pipeline.append.lists.run as of_lists
import indexmill.pipeline.append.run as x
import indexmill.pipeline.append.tables.run as of_tables
import indexmill.pipeline.generations.run as generation
import indexmill.pipeline.mill.publish

victim, index, more = sys.argv[1:4]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def then_die(function):
    def run(*arguments, **keywords):
        function(*arguments, **keywords)
        die()
    return run

for holder in (x, of_lists, of_tables, of_tables.AddedTables, of_tables.NewTables):
    if hasattr(holder, victim):
        setattr(holder, victim, then_die(getattr(holder, victim)))
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
indexmill.append(index, more, workers=1, **({"id_column": "id", "replace": True} if more.endswith("parquet") else {}))
"""


def append(victim: str, index: Path, more: Path, failpoint: str = "") -> int:
    return run_forked(APPEND, victim, index, more, failpoint=failpoint).returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index, what to append to it, and the undisturbed result."""
    path = tmp_path_factory.mktemp("kill")
    build(path / "old", points(500, 1))
    np.save(path / "more.npy", points(100, 2))
    indexmill.append(path / "old", path / "more.npy", out=path / "whole")
    return path


def test_killed_in_every_stage_and_run_again(folder: Path, tmp_path: Path) -> None:
    index = shutil.copytree(folder / "old", tmp_path / "ix")
    for step in ("read_addition", "new_graph", "extend_graph", "write_files", "measure"):
        assert append(step, index, folder / "more.npy") == -signal.SIGKILL, step
        assert data_files(index) == data_files(folder / "old"), step
        assert (tmp_path / ".ix.indexmill-scratch").is_dir()
    assert append("nothing", index, folder / "more.npy") == 0
    assert data_files(index) == data_files(folder / "whole")
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inverted lists, what to add or replace in them, and the undisturbed result."""
    path = tmp_path_factory.mktemp("kill-lists")
    how: dict[str, Any] = {"kind": "ivf", "lists": 5, "batch_vectors": 200, "workers": 1}
    indexmill.build(points(500, 1), path / "old", ids=np.arange(500), **how)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(points(100, 2).ravel()), DIM)
    table = pa.table({"id": np.arange(450, 550), "v": rows})
    pq.write_table(table, path / "more.parquet")
    indexmill.append(path / "old", table, id_column="id", replace=True, out=path / "whole")
    return path


def test_an_upsert_of_lists_that_was_killed_is_run_again(lists: Path, tmp_path: Path) -> None:
    index = shutil.copytree(lists / "old", tmp_path / "ix")
    for step in ("read_new", "coded", "write_batches", "seal_files", "with_deleted"):
        assert append(step, index, lists / "more.parquet") == -signal.SIGKILL, step
        assert data_files(index) == data_files(lists / "old"), step
    for failpoint, state in (
        ("publish-copied", "old"),
        ("publish-sealed", "old"),
        ("publish-aside", "whole"),
    ):
        assert append("nothing", index, lists / "more.parquet", failpoint) == -signal.SIGKILL
        assert data_files(index) == data_files(lists / state), failpoint
    assert verify_index(index) == []
    shutil.rmtree(index)
    shutil.copytree(lists / "old", index)
    assert append("nothing", index, lists / "more.parquet") == 0
    assert data_files(index) == data_files(lists / "whole")
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


@pytest.mark.parametrize("n", [100, 40])
def test_an_upsert_of_tables_that_was_killed_is_run_again(lists: Path, tmp_path: Path, n: int) -> None:
    more, are_added = tmp_path / "more.parquet", n * 10 <= 500
    pq.write_table(pq.read_table(lists / "more.parquet")[:n], more)
    old, index = tmp_path / "old", tmp_path / "ix"
    indexmill.build(points(500, 1), old, ids=np.arange(500), kind="lsh", n_tables=4, workers=1)
    shutil.copytree(old, index)
    for step in ["read_vectors", "write", "take_over", "drift_of", "seal_files", "with_deleted"]:
        assert append(step, index, more) == -signal.SIGKILL, step
        assert data_files(index) == data_files(old), step
    assert append("nothing", index, more, "publish-copied") == -signal.SIGKILL
    assert data_files(index) == data_files(old)
    assert append("nothing", index, more, "publish-aside") == -signal.SIGKILL
    indexmill.append(old, more, id_column="id", replace=True, out=tmp_path / "whole")
    assert data_files(index) == data_files(tmp_path / "whole")
    assert verify_index(index) == []
    assert (index / "added-tables.imx").exists() == are_added


def test_killed_while_publishing_there_is_always_a_generation(folder: Path, tmp_path: Path) -> None:
    index = shutil.copytree(folder / "old", tmp_path / "ix")
    assert append("nothing", index, folder / "more.npy", "publish-sealed") == -signal.SIGKILL
    assert data_files(index) == data_files(folder / "old")
    assert append("nothing", index, folder / "more.npy", "publish-aside") == -signal.SIGKILL
    assert data_files(index) == data_files(folder / "whole")


def test_killed_while_publishing_without_an_exchange_loses_neither_generation(
    folder: Path, tmp_path: Path
) -> None:
    index = shutil.copytree(folder / "old", tmp_path / "ix")
    for rename in ("rename-1", "rename-2"):  # the old generation aside, the new one into place
        assert append(rename, index, folder / "more.npy") == -signal.SIGKILL
        assert index.exists() == (rename == "rename-1")
    assert append("nothing", index, folder / "more.npy") == 0
    assert data_files(index) == data_files(folder / "whole")
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_a_generation_that_stepped_aside_comes_back(folder: Path, tmp_path: Path) -> None:
    index = shutil.copytree(folder / "old", tmp_path / "ix")
    assert append("rename-2", index, folder / "more.npy") == -signal.SIGKILL
    assert not index.exists()
    check_output(index, force=True)  # what any append, merge or build does first
    assert verify_index(index) == []
    assert data_files(index) == data_files(folder / "old")


def test_an_index_replaced_meanwhile_is_not_overwritten(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import indexmill.pipeline.append.run as extend
    from indexmill.formats.errors import ConfigError

    index = shutil.copytree(folder / "old", tmp_path / "ix")
    write_files = extend.write_files

    def write_and_replace(*arguments: object) -> object:
        written = write_files(*arguments)  # type: ignore[arg-type]
        shutil.rmtree(index)
        shutil.copytree(folder / "whole", index)
        return written

    monkeypatch.setattr(extend, "write_files", write_and_replace)
    with pytest.raises(ConfigError, match="was replaced meanwhile; run again"):
        indexmill.append(index, points(7, 9))
    assert data_files(index) == data_files(folder / "whole")
