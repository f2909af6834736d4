"""Publishing: a new index takes the place of an old one in one step, and never inside another index."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest
from tests.support.indexes.append import build, points
from tests.support.indexes.builds import assert_sound, data_files

import indexmill
from indexmill.formats.errors import ConfigError, OutputExistsError
from indexmill.formats.pagefile import atomic
from indexmill.pipeline.mill import publish


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("publish") / "index", points(60, 1))


def test_two_directories_swap_their_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert atomic.exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "b").exists()
    assert (tmp_path / "b" / "a").exists()
    with pytest.raises(FileNotFoundError, match="none"):
        atomic.exchange(tmp_path / "a", tmp_path / "none")


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM, None])
def test_a_system_that_cannot_swap_names_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int | None
) -> None:
    def refuse(*_: object) -> int:
        atomic.ctypes.set_errno(refusal or 0)
        return -1

    monkeypatch.setattr(atomic, "renameat2", lambda: None if refusal is None else refuse)
    assert not atomic.exchange(tmp_path, tmp_path)


def test_a_replaced_index_is_there_at_every_moment(index: Path, tmp_path: Path) -> None:
    out = shutil.copytree(index, tmp_path / "ix")
    missing, looked, done = 0, 0, threading.Event()

    def watch() -> None:
        nonlocal missing, looked
        while not done.is_set():
            missing += not os.path.exists(out / "manifest.json")
            looked += 1

    watcher = threading.Thread(target=watch)
    watcher.start()
    for seed in range(5):
        build(out, points(60, seed), force=True)
    done.set()
    watcher.join()
    assert looked > 1000
    assert missing == 0


def test_a_link_that_is_replaced_leaves_its_target(index: Path, tmp_path: Path) -> None:
    target, link = shutil.copytree(index, tmp_path / "target"), tmp_path / "link"
    link.symlink_to(target)
    build(link, points(60, 2), force=True)
    assert data_files(target) == data_files(index)
    assert data_files(link) != data_files(index)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "target"]


@pytest.mark.parametrize("name", ["next", "a/b/next"])
def test_an_output_inside_an_index_is_refused(index: Path, tmp_path: Path, name: str) -> None:
    outer = shutil.copytree(index, tmp_path / "outer")
    (tmp_path / "link").symlink_to(outer)
    for out in (outer / name, tmp_path / "link" / name):
        for run in (
            lambda out: indexmill.append(outer, points(5, 3), out=out),
            lambda out: build(out, points(5, 3)),
        ):
            with pytest.raises(
                ConfigError, match=r"out: .* lies inside the index .*outer and would be deleted"
            ):
                run(out)
        with pytest.raises(ConfigError, match="lies inside the index"):
            publish.check_output(out, force=True)
    assert sorted(p.name for p in outer.iterdir()) == sorted(p.name for p in index.iterdir())


def test_an_output_inside_a_damaged_index_is_refused(index: Path, tmp_path: Path) -> None:
    outer = shutil.copytree(index, tmp_path / "outer")
    raw = (outer / "manifest.json").read_bytes()
    (outer / "manifest.json").write_bytes(raw.replace(b'"parents"', b'"parenth"'))
    with pytest.raises(ConfigError, match="lies inside the index"):
        publish.check_output(outer / "next", force=False)


def test_an_output_beside_a_manifest_of_another_program_is_fine(tmp_path: Path) -> None:
    theirs = '{"name": "a web application"}'
    (tmp_path / "manifest.json").write_text(theirs)
    assert_sound(build(tmp_path / "site" / "ix", points(60, 1)))
    assert (tmp_path / "manifest.json").read_text() == theirs


def test_an_output_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"file cannot be written .* name another directory with --out"):
        build(tmp_path / "file" / "ix", points(60, 1))


def test_removing_what_is_left_can_be_killed_and_goes_on(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = shutil.copytree(index, tmp_path / "left")
    unlink, removed = Path.unlink, []

    def fail_later(self: Path, missing_ok: bool = False) -> None:
        if len(removed) == 3:
            raise KeyboardInterrupt
        removed.append(self)
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", fail_later)
    with pytest.raises(KeyboardInterrupt):
        publish.remove_leftover(left)
    monkeypatch.undo()
    (left / "manifest.json").unlink(missing_ok=True)
    publish.remove_leftover(left)
    assert not left.exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(OutputExistsError, match="holds other things"):
        publish.remove_leftover(tmp_path / "other")
