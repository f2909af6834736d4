"""Reads that are made side by side, and again where they hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from pyarrow import fs

from indexmill.formats.errors import StorageError
from indexmill.formats.urls import client
from indexmill.pipeline.urls import beside
from indexmill.pipeline.urls.beside import Read, answer, answers
from indexmill.pipeline.urls.cache import manifest_at
from indexmill.pipeline.urls.storage import Storage

T = TypeVar("T")


def named(make: Callable[[], T], n_bytes: int = 0) -> Read[T]:
    return Read(make, n_bytes, "reading s3://bucket/file")


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Return what reads that hang wait for."""
    event = threading.Event()
    yield event
    event.set()


def test_reads_are_made_side_by_side_and_each_is_answered_once() -> None:
    together = threading.Barrier(5)

    def read(number: int) -> int:
        together.wait(10)
        return number * number

    found = dict(answers([named(lambda number=number: read(number), 1) for number in range(5)]))  # type: ignore[misc]
    assert found == {number: number * number for number in range(5)}
    assert list(answers([])) == []


def test_a_read_that_hangs_is_made_again_and_the_first_answer_counts(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "PATIENCE_S", 0.02)
    hanging, made = [True, True], []

    def read() -> str:
        made.append(time.monotonic())
        if hanging and hanging.pop():
            released.wait(60)
            return "late"
        return "in time"

    began = time.monotonic()
    assert answer(named(read)) == "in time"
    assert len(made) == 3
    assert made[2] - began >= 0.04


def test_a_read_that_takes_long_is_waited_for_however_often_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(beside, "PATIENCE_S", 0.01)
    made = []

    def read() -> int:
        made.append(0)
        time.sleep(0.2)
        return 7

    assert answer(named(read)) == 7
    assert len(made) == beside.TRIES


def test_reads_that_share_a_slow_line_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "PATIENCE_S", 0.01)
    monkeypatch.setattr(beside, "LEAST_BYTES_PER_S", 100 << 20)
    made = []

    def read() -> None:
        made.append(0)
        time.sleep(0.3)

    assert len(list(answers([named(read, 8 << 20) for _ in range(20)]))) == 20
    assert len(made) == 20, "160 MiB have 1.6 s"


def test_an_error_ends_all_unless_another_try_may_be_answered(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "PATIENCE_S", 0.02)

    def fail() -> int:
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        dict(answers([named(lambda: released.wait(60), 1), named(fail, 1)]))

    n_made, second = [0], threading.Event()

    def read() -> str:
        n_made[0] += 1
        if n_made[0] == 1:
            second.wait(60)
            time.sleep(0.05)
            return "the first try"
        second.set()
        raise OSError("connection reset")

    assert answer(named(read)) == "the first try"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tries, and count them as failed, after moments."""
    monkeypatch.setattr(beside, "PATIENCE_S", 0.01)
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.05)


@pytest.mark.usefixtures("impatient")
def test_a_read_whose_every_try_hangs_ends_in_an_error(released: threading.Event) -> None:
    made = []

    def read() -> None:
        made.append(0)
        released.wait(60)

    said = r"^reading s3://bucket/file: failed 5 times \(no answer in 0 s\); check that the storage answers and run"
    with pytest.raises(StorageError, match=said):
        dict(answers([named(lambda: None), named(read)]))
    assert len(made) == beside.TRIES
    assert client.calls_hang(), "a command must not wait for them at its end"
    released.set()
    for thread in threading.enumerate():
        if thread.name == "indexmill-open":
            thread.join()
    assert not client.calls_hang()


@pytest.mark.usefixtures("impatient")
def test_what_a_try_raised_says_more_than_that_the_others_hang(released: threading.Event) -> None:
    made = []

    def read() -> None:
        made.append(0)
        if len(made) == 2:
            raise StorageError("reading s3://bucket/file: refused (ACCESS_DENIED)")
        released.wait(60)

    with pytest.raises(StorageError, match="ACCESS_DENIED"):
        answer(named(read))
    assert len(made) == beside.TRIES


def test_the_last_try_has_the_time_of_any_call(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "PATIENCE_S", 0.01)
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(client, "LEAST_BYTES_PER_SECOND", 1000)
    began = time.monotonic()
    with pytest.raises(StorageError, match=r"no answer in 0 s"):
        answer(named(lambda: released.wait(60), 200))
    assert time.monotonic() - began >= 4 * 0.01 + 0.1 + 0.2


@pytest.mark.usefixtures("impatient")
def test_a_manifest_that_a_file_system_of_pyarrow_does_not_give_is_named(
    released: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hanging(fs.LocalFileSystem):
        def open_input_stream(self, path: str, *how: object, **options: object) -> object:
            released.wait(60)
            raise OSError("too late")

    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "manifest.json").write_text("{}")
    storage = Storage((tmp_path / "store").as_uri(), str(tmp_path / "mirror"))
    monkeypatch.setattr(storage, "filesystem", Hanging())
    with pytest.raises(
        StorageError, match=r"^reading file://\S+/store/manifest.json: failed 5 times \(no answer"
    ):
        manifest_at(storage)


def test_few_bytes_are_on_their_way_at_a_time() -> None:
    at_once, most, lock = 0, 0, threading.Lock()

    def read() -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.02)
        with lock:
            at_once -= 1

    assert len(list(answers([named(read, 100 << 20) for _ in range(6)]))) == 6
    assert most == 2
    assert len(list(answers([named(read, 1 << 30) for _ in range(2)]))) == 2, (
        "one larger than all is read alone"
    )
