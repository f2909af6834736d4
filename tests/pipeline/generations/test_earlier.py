"""Earlier generations of an index that was written anew: kept as hard links, gone back to, and collected."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.deleted import DIM, NAMES, Built, N, found_in
from tests.support.indexes.generations import folders, numbers
from tests.support.processes.forks import run_forked

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, InputError
from indexmill.pipeline.execution.failpoint import arm
from indexmill.pipeline.generations.history import history

MORE = np.random.default_rng(3).integers(0, 60, (20, DIM)).astype(np.uint8)
#: What writes an index anew; NAMES[:3] are deleted.
CHANGES: dict[str, Callable[[Path, Path], Any]] = {
    "append": lambda index, _: indexmill.append(index, MORE, ids=[f"new-{i}" for i in range(20)], workers=1),
    "upsert": lambda index, _: indexmill.append(index, MORE, ids=NAMES[:20], replace=True, workers=1),
    "merge": lambda index, other: indexmill.merge(index, other, force=True, workers=1),
    "compact": lambda index, _: indexmill.compact(index, workers=1),
}
PLACES = ("publish-copied", "publish-sealed", "publish-aside", "publish-done")


def append(index: Path, seed: int) -> None:
    indexmill.append(index, MORE[:5], ids=[f"{seed}-{i}" for i in range(5)], workers=1)


@pytest.fixture
def index(built: Built, tmp_path: Path) -> Path:
    """Lists with a deletion (generation 2), and then an append (3)."""
    path = built.copy("ivf", tmp_path / "ix")
    indexmill.delete(path, NAMES[:3])
    append(path, 0)
    return path


@pytest.mark.parametrize("kind", ["graph", "ivf", "lsh"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_can_be_undone_and_that_undone_again(
    built: Built, tmp_path: Path, kind: str, change: str
) -> None:
    index, other = (built.copy(kind, tmp_path / name) for name in ("ix", "other"))
    indexmill.delete(index, NAMES[:3])
    indexmill.delete(other, NAMES[3:])
    before, found = data_files(index), found_in(index)[0]
    files = {path.name: path.stat().st_ino for path in index.glob("*.imx")}
    CHANGES[change](index, other)
    after = data_files(index)
    assert after != before
    assert (numbers(index), folders(index)) == ([1, 2, 3], ["000002"])
    assert data_files(index / "generations" / "000002") == before
    report = indexmill.rollback(index)
    assert (report["generation"], report["restored"], report["deleted"]) == (4, 2, 3)
    assert found_in(index)[0] == found
    assert {path.name: path.stat().st_ino for path in index.glob("*.imx")} == files  # no copies
    assert_sound(index)
    assert numbers(index) == [1, 2, 3, 4]
    assert (indexmill.rollback(index, 3)["generation"], folders(index)) == (5, ["000004"])
    assert {name: data_files(index)[name] for name in after if name != "manifest.json"} == {
        name: content for name, content in after.items() if name != "manifest.json"
    }
    assert numbers(index) == [1, 2, 3, 4, 5]
    assert_sound(index)
    indexmill.rollback(index, 1)
    assert found_in(index)[0] == set(range(N))
    assert indexmill.gc(index)["generations"] == [6]
    assert folders(index) == []
    assert [name for name in os.listdir(index) if name.startswith(("manifest-", "deleted-", "gen"))] == []
    assert_sound(index)


def test_a_layout_and_an_upgrade_can_be_undone(built: Built, tmp_path: Path) -> None:
    index = built.copy("graph", tmp_path / "ix")
    before = data_files(index)
    indexmill.lay_out(index, "random", workers=1)
    assert numbers(index) == [1, 2]
    indexmill.rollback(index)
    assert data_files(index)["graph.imx"] == before["graph.imx"]
    old = shutil.copytree(Path(__file__).parents[2] / "golden" / "v1_1", tmp_path / "old")
    was = data_files(old)
    assert indexmill.upgrade(old)["generation"] == 2
    assert data_files(old / "generations" / "000001") == was
    assert indexmill.rollback(old)["restored"] == 1
    assert {name: data_files(old)[name] for name in was if name != "manifest.json"} == {
        name: content for name, content in was.items() if name != "manifest.json"
    }
    assert_sound(index)


def test_the_history_tells_what_each_generation_was_made_from(index: Path) -> None:
    indexmill.delete(index, NAMES[5:7])
    indexmill.rollback(index, 1)
    found, _ = history(index)
    facts = [one.facts(found) for one in found]
    assert [(one["generation"], one["previous"]) for one in facts] == [
        (1, None),
        (2, 1),
        (3, 2),
        (4, 3),
        (5, None),
    ]
    assert [one["vectors"] for one in facts] == [N, N - 3, N + 2, N, N]
    written = [one["written"] for one in facts]
    assert written == sorted(written)
    shown = run("inspect", index, "--history")
    assert shown.exit_code == 0
    assert "5, present" in shown.stdout


def test_a_change_keeps_one_directory_before_it(index: Path) -> None:
    assert folders(index) == ["000002"]
    indexmill.delete(index, NAMES[5:7])
    append(index, 1)
    assert (folders(index), numbers(index)) == (["000004"], [3, 4, 5])
    assert indexmill.rollback(index)["restored"] == 4
    assert indexmill.rollback(index)["restored"] == 3
    with pytest.raises(
        ConfigError, match=r"generation 2 of .* is not kept; kept beside the present one: 3, 4, 5, 6"
    ):
        indexmill.rollback(index)


def test_other_outputs_and_builds_keep_nothing(index: Path, built: Built, tmp_path: Path) -> None:
    other = built.copy("ivf", tmp_path / "other")
    indexmill.append(other, MORE, ids=[f"new-{i}" for i in range(20)], out=index, force=True)
    assert (folders(index), numbers(index)) == ([], [2])
    append(index, 0)
    indexmill.build(MORE, index, kind="ivf", lists=2, force=True, workers=1)
    assert (folders(index), numbers(index)) == ([], [1])
    with pytest.raises(
        ConfigError, match=r"no generation to go back to: 1 is the only one; .* a build begins anew"
    ):
        indexmill.rollback(index)


def test_gc_keeps_the_newest_of_a_folder_and_then_none(index: Path) -> None:
    append(index, 1)
    indexmill.rollback(index)  # generations 3, 4 (in a folder) and 5
    assert numbers(index) == [3, 4, 5]
    indexmill.rollback(index, 4)
    indexmill.delete(index, NAMES[5:7])
    append(index, 2)  # 4, 6 and 7 in a folder, 8
    assert (folders(index), numbers(index)) == (["000007"], [4, 6, 7, 8])
    assert indexmill.gc(index, 4)["removed"] == []
    assert indexmill.gc(index, 3)["removed"] == ["generations/000007/manifest-000004.json"]
    assert indexmill.gc(index, 2)["removed"] == [
        "generations/000007/manifest-000006.json",
        "generations/000007/deleted-000004.imx",
    ]
    assert numbers(index) == [7, 8]
    assert_sound(index / "generations" / "000007")
    shared = {path.name for path in index.glob("batch-*") if path.stat().st_nlink > 1}
    freed = sum(
        p.stat().st_size for p in (index / "generations" / "000007").iterdir() if p.name not in shared
    )
    report = indexmill.gc(index)
    assert (report["removed"], report["generations"], report["bytes"]) == (["generations/000007"], [8], freed)
    assert (folders(index), numbers(index)) == ([], [8])
    assert not (index / "generations").exists()
    assert_sound(index)


@pytest.mark.kill
@pytest.mark.parametrize(("turn", "kept"), [(1, [1, 2, 3]), (2, [2, 3]), (3, [3])])
def test_a_gc_of_a_folder_that_is_killed_leaves_an_index_that_the_next_one_cleans(
    index: Path, turn: int, kept: list[int]
) -> None:
    """It removes two manifests, and then the files."""
    code = "import sys, indexmill\nindexmill.gc(sys.argv[1])"
    assert run_forked(code, index, failpoint=f"gc-removing:{turn}").returncode == -signal.SIGKILL
    assert (numbers(index), folders(index)) == (kept, ["000002"])
    assert_sound(index)
    assert indexmill.gc(index)["removed"] == ["generations/000002"]
    assert (numbers(index), folders(index)) == ([3], [])
    assert_sound(index)


@pytest.mark.kill
@pytest.mark.parametrize("kind", ["graph", "ivf", "lsh"])
def test_killed_anywhere_there_is_the_old_generation_or_the_new_one_with_a_way_back(
    built: Built, tmp_path: Path, kind: str
) -> None:
    for place in PLACES:
        index = built.copy(kind, tmp_path / place)
        indexmill.delete(index, NAMES[:3])
        before = data_files(index)
        code = "import sys, indexmill\nindexmill.compact(sys.argv[1], workers=1)"
        assert run_forked(code, index, failpoint=place).returncode == -signal.SIGKILL
        is_new = place in ("publish-aside", "publish-done")
        assert numbers(index) == ([1, 2, 3] if is_new else [1, 2]), place
        if is_new:
            assert data_files(index / "generations" / "000002") == before
            assert indexmill.rollback(index)["restored"] == 2
        else:
            assert data_files(index) == before
        assert len(found_in(index)[0]) == N - 3
        assert_sound(index)


@pytest.mark.kill
@pytest.mark.parametrize("place", PLACES)
def test_a_rollback_to_a_folder_that_is_killed_leaves_one_or_the_other(index: Path, place: str) -> None:
    before = data_files(index)
    code = "import sys, indexmill\nindexmill.rollback(sys.argv[1])"
    assert run_forked(code, index, failpoint=place).returncode == -signal.SIGKILL
    is_new = place in ("publish-aside", "publish-done")
    assert numbers(index) == ([1, 2, 3, 4] if is_new else [1, 2, 3])
    assert (data_files(index) == before) != is_new
    assert len(found_in(index)[0]) == (N - 3 if is_new else N + 2)
    assert_sound(index)
    indexmill.gc(index, 9)
    assert [path.name for path in index.parent.iterdir()] == ["ix"]
    assert numbers(index) == ([1, 2, 3, 4] if is_new else [1, 2, 3])
    assert indexmill.rollback(index, 3 if is_new else 2)["vectors"] == (N + 2 if is_new else N - 3)
    assert_sound(index)


#: Runs on an index that has a folder of generation 2, that end in manifests of one directory.
IN_ONE_DIRECTORY = {
    "delete": ("import sys, indexmill\nindexmill.delete(sys.argv[1], sys.argv[2:])", NAMES[5:7]),
    "rollback": ("import sys, indexmill\nindexmill.rollback(sys.argv[1], int(sys.argv[2]))", ["4"]),
    "rollback to a folder": (
        "import sys, indexmill\nindexmill.rollback(sys.argv[1], int(sys.argv[2]))",
        ["2"],
    ),
}


@pytest.mark.kill
@pytest.mark.parametrize("change", IN_ONE_DIRECTORY)
@pytest.mark.parametrize("place", PLACES)
def test_after_a_kill_there_is_a_way_back_over_the_next_append(change: str, place: str, index: Path) -> None:
    """A manifest of the present generation may be kept beside it then, as no run looks after it."""
    indexmill.delete(index, NAMES[7:9])
    indexmill.delete(index, NAMES[9:10])
    code, arguments = IN_ONE_DIRECTORY[change]
    died = run_forked(code, index, *arguments, failpoint=place).returncode == -signal.SIGKILL
    assert died or (place in PLACES[1:3] and change != "rollback to a folder")
    before, present = found_in(index)[0], numbers(index)[-1]
    append(index, 1)
    assert indexmill.rollback(index)["restored"] == present
    assert found_in(index)[0] == before
    indexmill.rollback(index, present + 1)
    assert_sound(index)
    assert indexmill.gc(index, 2)["generations"] == [present + 2, present + 3]
    indexmill.rollback(index, present + 2)
    assert found_in(index)[0] == before
    assert_sound(index)


def test_the_manifest_of_a_folder_stands_for_its_generation(index: Path) -> None:
    folder = index / "generations" / "000002"
    shutil.copy2(folder / "manifest.json", folder / "manifest-000002.json")
    assert indexmill.gc(index, 2)["generations"] == [2, 3]
    assert (folder / "manifest.json").is_file()
    assert_sound(folder)
    shutil.copy2(folder / "manifest.json", folder / "manifest-000002.json")
    assert indexmill.rollback(index)["restored"] == 2
    assert numbers(index) == [2, 3, 4]
    assert_sound(index)


#: Goes back where names cannot be exchanged.
ROLLBACK = """
import sys
import indexmill
import indexmill.pipeline.mill.publish

indexmill.pipeline.mill.publish.exchange = lambda first, second: False
indexmill.rollback(sys.argv[1])
"""


@pytest.mark.kill
def test_a_rollback_between_two_renames_loses_nothing(index: Path) -> None:
    assert run_forked(ROLLBACK, index, failpoint="publish-aside").returncode == -signal.SIGKILL
    assert not index.exists()
    assert indexmill.rollback(index)["restored"] == 2
    assert numbers(index) == [1, 2, 3, 4]
    assert_sound(index)


def test_a_reader_keeps_the_generation_it_opened(index: Path) -> None:
    opened: Any = indexmill.open(index)
    wanted = opened.search(MORE, 5, nprobe=5).vector_ids
    indexmill.rollback(index)
    append(index, 1)
    indexmill.gc(index)
    np.testing.assert_array_equal(opened.search(MORE, 5, nprobe=5).vector_ids, wanted)


def test_a_damaged_present_manifest_is_replaced_from_a_folder(index: Path) -> None:
    (index / "manifest.json").write_bytes(b"{}")
    done = run("rollback", index)
    assert done.exit_code == 0, done.stderr
    assert "manifest.json" in done.stderr
    assert len(found_in(index)[0]) == N - 3
    found, damaged = history(index)
    assert [one.manifest.generation for one in found] == [1, 2, 4]
    assert ["generations/000003/manifest.json" in message for message in damaged] == [True]
    assert indexmill.gc(index, 9)["removed"] == ["generations/000003"]
    assert_sound(index)


def test_a_full_disk_leaves_the_present_generation(index: Path) -> None:
    before = data_files(index)
    arm("publish-copied=ENOSPC")
    with pytest.raises(
        BudgetError, match="No space left on device; the present generation is as it was; free some"
    ):
        indexmill.rollback(index)
    arm("")
    assert data_files(index) == before
    assert [path.name for path in index.parent.iterdir()] == ["ix"]


def test_without_hard_links_no_generation_is_kept_and_none_is_copied(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    before = data_files(index)
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(
        ConfigError, match=r"files of .*generations/000002 get no second names .*; it is an index of its"
    ):
        indexmill.rollback(index)
    assert data_files(index) == before
    assert [path.name for path in index.parent.iterdir()] == ["ix"]
    append(index, 1)
    assert (folders(index), numbers(index)) == ([], [4])
    assert_sound(index)


def test_a_folder_is_an_index_of_its_own(index: Path) -> None:
    folder = index / "generations" / "000002"
    assert len(found_in(folder)[0]) == N - 3
    assert run("verify", folder).exit_code == 0
    with pytest.raises(ConfigError, match="lies inside the index"):
        append(folder, 1)


def test_gc_cleans_where_a_run_was_killed_before_there_was_an_index(index: Path, tmp_path: Path) -> None:
    out = tmp_path / "new"
    for part in ("new", "scratch", "compact", "build"):
        (tmp_path / f".new.indexmill-{part}").mkdir()
    (tmp_path / ".new.indexmill-new" / ".indexmill-unfinished").touch()
    done = run("gc", out)
    assert done.exit_code == 0, done.stderr
    assert "none, there is no index" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new.indexmill-build", "ix"]
    with pytest.raises(InputError, match="no such index"):
        indexmill.gc(out)


@pytest.mark.kill
def test_gc_cleans_the_work_directory_of_a_compaction_that_was_killed(built: Built, tmp_path: Path) -> None:
    index, work = built.copy("graph", tmp_path / "ix"), tmp_path / "work"
    indexmill.delete(index, NAMES[:3])
    code = "import sys, indexmill\nindexmill.compact(sys.argv[1], work=sys.argv[2], workers=1)"
    assert run_forked(code, index, work, failpoint="publish-done").returncode == -signal.SIGKILL
    assert len(os.listdir(work)) == 1
    done = run("gc", index, "--keep-generations", "9", "--work", work)
    assert done.exit_code == 0, done.stderr
    assert os.listdir(work) == []
    assert numbers(index) == [1, 2, 3]
