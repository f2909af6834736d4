"""A full disk ends every run that writes the next generation with what to do, and leaves the index as it was."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.deleted import DIM, NAMES, Built

import indexmill
from indexmill.formats.errors import BudgetError
from indexmill.formats.index.manifest import read_manifest
from indexmill.pipeline.execution.failpoint import arm
from indexmill.pipeline.generations import run

MORE = np.random.default_rng(3).integers(0, 60, (20, DIM)).astype(np.uint8)
NEW_NAMES = [f"new-{i}" for i in range(len(MORE))]
COMMANDS: dict[str, Callable[..., Any]] = {
    "append": lambda index, _, **how: indexmill.append(index, MORE, ids=NEW_NAMES, workers=1, **how),
    "merge": lambda index, other, **how: indexmill.merge(index, other, workers=1, force=True, **how),
    "compact": lambda index, _, **how: indexmill.compact(index, workers=1, **how),
}


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm("")


def two(built: Built, kind: str, folder: Path) -> tuple[Path, Path]:
    """Two indexes of a kind without an id in common, both with deletions."""
    index, other = (built.copy(kind, folder / name) for name in ("ix", "other"))
    indexmill.delete(index, NAMES[:40])
    indexmill.delete(other, NAMES[40:])
    return index, other


@pytest.mark.parametrize("kind", ["graph", "ivf", "lsh"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_that_fills_while_publishing_is_told_with_the_remedy(
    built: Built, tmp_path: Path, command: str, kind: str
) -> None:
    pair = two(built, kind, tmp_path)
    index, before = pair[0], data_files(pair[0])
    arm("publish-copied=ENOSPC")
    with pytest.raises(
        BudgetError,
        match=r"No space left on device; the index is as it was; free some space, or name another",
    ):
        COMMANDS[command](*pair)
    arm("")
    assert data_files(index) == before
    left = {path.name for path in index.parent.iterdir()} - {"ix", "other"}
    assert left <= {".ix.indexmill-compact"}  # which the next compaction resumes with
    assert_sound(index)
    COMMANDS[command](*pair)
    assert_sound(index)


@pytest.mark.parametrize(
    ("command", "kind", "stage"),
    [
        ("compact", "graph", "emit"),
        ("compact", "ivf", "lists"),
        ("compact", "ivf", "seal"),
        ("compact", "lsh", "tables"),
        ("merge", "ivf", "lists"),
        ("merge", "lsh", "tables"),
        ("merge", "graph", "emit"),  # of the compaction of its parts
    ],
    ids="-".join,
)
def test_a_disk_that_fills_within_a_stage_is_told_with_the_remedy(
    built: Built, tmp_path: Path, command: str, kind: str, stage: str
) -> None:
    pair = two(built, kind, tmp_path)
    index, before = pair[0], data_files(pair[0])
    for out, whole in (({}, "the index is as it was"), ({"out": tmp_path / "new"}, "nothing was published")):
        arm(f"{stage}-written=ENOSPC")
        with pytest.raises(
            BudgetError, match=rf"in stage {stage}, beside [\d,]+ bytes of this run; {whole}; free"
        ) as error:
            COMMANDS[command](*pair, **out)
        assert ("finished stages are kept" in str(error.value)) is ((command, kind) != ("merge", "graph"))
        arm("")
    assert data_files(index) == before
    COMMANDS[command](*pair)
    assert_sound(index)


# The room of an append to a graph is taken when its files are made.
@pytest.mark.parametrize(
    ("command", "kind"),
    [(command, kind) for command in COMMANDS for kind in ("graph", "ivf", "lsh")][1:],
    ids="-".join,
)
def test_a_disk_without_room_is_told_before_any_work(
    built: Built, tmp_path: Path, command: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = two(built, kind, tmp_path)
    index, before = pair[0], data_files(pair[0])
    usage = shutil.disk_usage(index)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    what = {"compact": "compaction"}.get(command, command)
    with pytest.raises(BudgetError, match=rf"the {what} needs [\d,]+ bytes there, 1,000 are free; make room"):
        COMMANDS[command](*pair)
    assert data_files(index) == before
    assert sorted(path.name for path in index.parent.iterdir()) == ["ix", "other"]


@pytest.mark.parametrize("kind", ["graph", "ivf", "lsh"])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_without_room_for_copies_is_told_before_any_work(
    built: Built, tmp_path: Path, command: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, usage, disk = two(built, kind, tmp_path), shutil.disk_usage(tmp_path), tmp_path / "disk"
    left = disk / ".new.indexmill-new"  # of a run that was killed; its room is free
    left.mkdir(parents=True)
    (left / "manifest.json").touch()
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: usage._replace(free=1000) if Path(path) == disk else usage
    )
    where = {"out": disk / "new", "work": tmp_path / "work"}
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", no_link)
        with pytest.raises(
            BudgetError,
            match=rf"^out: {disk}: the new index takes [\d,]+ bytes, 1,000 are free; make room, or name another --out$",
        ):
            COMMANDS[command](*pair, **where)
    assert list(disk.iterdir()) == list((tmp_path / "work").iterdir()) == []
    COMMANDS[command](*pair, **where)  # links take no room
    assert_sound(disk / "new")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_copy_that_fills_the_disk_of_the_output_names_it(
    built: Built, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, out, real = two(built, "graph", tmp_path), tmp_path / "new", shutil.copyfile

    def full(source: Path, target: Path) -> None:
        if Path(target).parent.name != ".new.indexmill-new":
            real(source, target)
            return
        raise OSError(
            errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target)
        )  # as shutil does

    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(
        BudgetError,
        match=rf"^{tmp_path}/\.new\.indexmill-new/\S+: No space left on device; copying \S+ takes [\d,]+ bytes, "
        r"[\d,]+ are free; nothing was published; free some space",
    ):
        COMMANDS[command](*pair, out=out, work=tmp_path / "work")
    assert not out.exists()


@pytest.mark.parametrize(("kind", "taken_over"), [("ivf", "batch-*.imx"), ("lsh", "[tb]*s.imx")])
def test_an_append_counts_copies_of_files_that_can_have_no_second_name(
    built: Built, tmp_path: Path, kind: str, taken_over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, usage, needs = built.copy(kind, tmp_path / "ix"), shutil.disk_usage(tmp_path), []
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
        for _ in range(2):
            with pytest.raises(BudgetError, match="the append needs") as refused:
                indexmill.append(index, MORE[:1], ids=["new"], workers=1)
            needs += re.findall(r"needs ([\d,]+) bytes there", str(refused.value))
            patched.setattr(os, "link", no_link)
    linked, copied = (int(need.replace(",", "")) for need in needs)
    assert copied - linked == sum(path.stat().st_size for path in index.glob(taken_over)) > 0


@pytest.mark.parametrize("kind", ["ivf", "lsh"])
def test_a_copy_without_deletions_takes_room_where_files_can_have_no_second_name(
    built: Built, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, usage = built.copy(kind, tmp_path / "ix"), shutil.disk_usage(tmp_path)
    size = sum(entry.bytes for entry in read_manifest(index, (kind,)).files)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=size - 1))
    indexmill.compact(index, out=tmp_path / "linked")
    monkeypatch.setattr(os, "link", no_link)
    with pytest.raises(
        BudgetError, match=rf"the copy takes {size:,} bytes, {size - 1:,} are free; make room"
    ):
        indexmill.compact(index, out=tmp_path / "copied")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ix", "linked"]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=size))
    indexmill.compact(index, out=tmp_path / "copied")
    assert data_files(tmp_path / "copied") == data_files(tmp_path / "linked") == data_files(index)


def no_link(source: Path, target: Path) -> None:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@pytest.mark.parametrize("kind", ["graph", "ivf", "lsh"])
@pytest.mark.parametrize("command", COMMANDS)
def test_scratch_files_lie_where_they_are_asked_for(
    built: Built, tmp_path: Path, command: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, other = two(built, kind, tmp_path)
    seen: list[Path] = []
    monkeypatch.setattr(run, "publish", lambda directory, *_, **__: seen.append(directory))
    COMMANDS[command](index, other, work=tmp_path / "work")
    assert [folder.relative_to(tmp_path).parts[0] for folder in seen] == ["work"]
    assert list((tmp_path / "work").iterdir()) == []
