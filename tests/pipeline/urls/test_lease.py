"""One build at a time in a work folder on storage."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from indexmill.formats.errors import ConfigError
from indexmill.pipeline.urls import lease
from indexmill.pipeline.urls.lease import LEASE_SECONDS, Lease
from indexmill.pipeline.urls.storage import Storage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "nfs"


def on(machine: str, folder: Path, **how: float) -> Lease:
    return Lease(Storage(f"file://{folder}", str(folder.parent / machine)), **how)


def killed_on(machine: str, folder: Path) -> Lease:
    """Return the lease of a build that took the folder and was killed."""
    storage = Storage(f"file://{folder}", str(folder.parent / machine))
    held = Lease(storage)
    storage.touch(held.name)
    return held


def age(folder: Path, held: Lease) -> None:
    """As if the build were not heard of for longer than a lease lasts."""
    then = time.time() - LEASE_SECONDS - 1
    os.utime(folder / held.name, (then, then))


def test_a_second_machine_is_refused_until_the_first_ends(folder: Path) -> None:
    one, two = on("one", folder), on("two", folder)
    one.take()
    with pytest.raises(ConfigError, match=rf"in use by another build, on .*delete {one.name} there"):
        two.take()
    one.check()
    one.release()
    third = on("two", folder)
    third.take()
    third.check()
    third.release()
    assert not list((folder / lease.FOLDER).iterdir())


def test_a_build_goes_on_while_another_one_asks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, times, checked = on("one", folder), on("two", folder), Storage.times, []
    one.take()

    def then_the_first_looks(self: Storage, name: str) -> dict[str, int | None]:
        """The second one has written its object, and looks for others; so does the first now."""
        monkeypatch.setattr(Storage, "times", times)
        one.check()
        checked.append(name)
        return times(self, name)

    monkeypatch.setattr(Storage, "times", then_the_first_looks)
    with pytest.raises(ConfigError, match=rf"in use by another build, on .*delete {one.name} there"):
        two.take()
    assert checked == [lease.FOLDER]
    one.check()
    one.release()
    assert not list((folder / lease.FOLDER).iterdir())


def test_of_two_that_ask_together_at_most_one_gets_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, times = on("one", folder), on("two", folder), Storage.times

    def then_the_other_asks(self: Storage, name: str) -> dict[str, int | None]:
        monkeypatch.setattr(Storage, "times", times)
        with pytest.raises(ConfigError, match=r"in use by another build, on \S+-[0-9a-f]{16}; "):
            two.take()
        return times(self, name)

    monkeypatch.setattr(Storage, "times", then_the_other_asks)
    one.take()
    one.check()
    one.release()


def test_a_build_that_took_too_long_to_ask_finds_that_it_was_taken_for_dead(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, touch = on("one", folder), on("two", folder), Storage.touch

    def late(self: Storage, name: str) -> None:
        if name == one.name:
            then = time.time() - LEASE_SECONDS - 1
            (asked,) = (folder / lease.FOLDER).iterdir()
            os.utime(asked, (then, then))
            monkeypatch.setattr(Storage, "touch", touch)
            two.take()
        touch(self, name)

    monkeypatch.setattr(Storage, "touch", late)
    with pytest.raises(ConfigError, match="another one took the folder"):
        one.take()
    two.check()
    two.release()


def test_a_machine_goes_on_at_once_with_a_build_that_was_killed(folder: Path) -> None:
    killed = killed_on("one", folder)
    again = on("one", folder)
    again.take()
    again.check()
    assert [file.name for file in (folder / lease.FOLDER).iterdir()] == [Path(killed.name).name]
    again.release()
    assert not list((folder / lease.FOLDER).iterdir())


def test_a_build_not_heard_of_loses_the_folder_and_ends(folder: Path) -> None:
    slept, two = killed_on("one", folder), on("two", folder)
    age(folder, slept)
    two.take()
    two.check()
    with pytest.raises(ConfigError, match="another one took the folder"):
        slept.check()
    two.release()


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_wrong_neither_loses_nor_keeps_a_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    one = killed_on("one", folder)
    right, right_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: right() + 3600 * hours)
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + 3600 * hours * 10**9)
    with pytest.raises(ConfigError, match="in use by another build"):
        on("two", folder).take()
    then = right() - LEASE_SECONDS - 1
    os.utime(folder / one.name, (then, then))
    two = on("two", folder)
    two.take()
    two.check()
    two.release()


def test_a_build_that_renews_itself_stays_young(folder: Path) -> None:
    one = on("one", folder, renew_seconds=0.01)
    one.take()
    age(folder, one)
    deadline = time.monotonic() + 5
    while time.time() - (folder / one.name).stat().st_mtime > 5:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(ConfigError, match="in use"):
        on("two", folder).take()
    one.release()
    time.sleep(0.05)
    assert not (folder / one.name).exists()


def test_a_build_whose_object_is_gone_does_not_write_it_again(folder: Path) -> None:
    one, before = on("one", folder, renew_seconds=0.01), threading.enumerate()
    one.take()
    (renewal,) = set(threading.enumerate()) - set(before)
    while (folder / one.name).exists():  # unless this falls between its look and its write
        (folder / one.name).unlink()
        time.sleep(0.05)
    renewal.join(5)
    assert not renewal.is_alive()
    one.release()
