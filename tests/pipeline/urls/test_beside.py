"""Reads that are made side by side, and again where they hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from indexmill.pipeline.urls import beside
from indexmill.pipeline.urls.beside import Read, answer, answers


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

    found = dict(answers([Read(lambda number=number: read(number), 1) for number in range(5)]))  # type: ignore[misc]
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
    assert answer(read) == "in time"
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

    assert answer(read) == 7
    assert len(made) == beside.TRIES


def test_reads_that_share_a_slow_line_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "PATIENCE_S", 0.01)
    monkeypatch.setattr(beside, "LEAST_BYTES_PER_S", 100 << 20)
    made = []

    def read() -> None:
        made.append(0)
        time.sleep(0.3)

    assert len(list(answers([Read(read, 8 << 20) for _ in range(20)]))) == 20
    assert len(made) == 20, "160 MiB have 1.6 s"


def test_an_error_ends_all_unless_another_try_may_be_answered(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "PATIENCE_S", 0.02)

    def fail() -> int:
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        dict(answers([Read(lambda: released.wait(60), 1), Read(fail, 1)]))

    n_made, second = [0], threading.Event()

    def read() -> str:
        n_made[0] += 1
        if n_made[0] == 1:
            second.wait(60)
            time.sleep(0.05)
            return "the first try"
        second.set()
        raise OSError("connection reset")

    assert answer(read) == "the first try"


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

    assert len(list(answers([Read(read, 100 << 20) for _ in range(6)]))) == 6
    assert most == 2
    assert len(list(answers([Read(read, 1 << 30) for _ in range(2)]))) == 2, (
        "one larger than all is read alone"
    )
