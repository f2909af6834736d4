"""Pieces of a file on storage: opened once, opened again after a failure, and never short."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from indexmill.formats.errors import StorageError
from indexmill.formats.urls import retry
from indexmill.formats.urls.pieces import Pieces

DATA = bytes(range(100))


class Store:
    """Counts how often its file is opened, and fails the reads of some numbers."""

    def __init__(self, *failing: int) -> None:
        self.failing, self.opened, self.reads = failing, 0, 0
        self.is_there = True

    def open(self) -> Store:
        self.opened += 1
        if not self.is_there:
            raise FileNotFoundError("no such object")
        return self

    def read_at(self, length: int, offset: int) -> bytes:
        self.reads += 1
        if self.reads in self.failing:
            raise OSError("connection reset")
        return DATA[offset : offset + length]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)


def test_a_file_is_opened_once_for_all_pieces_of_all_threads() -> None:
    store = Store()
    pieces = Pieces(store.open, "s3://b/x")
    with ThreadPoolExecutor(4) as threads:
        read = list(threads.map(lambda first: pieces.read(first, 10), range(0, 100, 10)))
    assert (b"".join(read), store.opened) == (DATA, 1)


def test_a_file_is_opened_again_after_a_piece_that_failed() -> None:
    store = Store(2, 3)
    pieces = Pieces(store.open, "s3://b/x")
    assert [pieces.read(0, 2), pieces.read(2, 2), pieces.read(4, 2)] == [DATA[:2], DATA[2:4], DATA[4:6]]
    assert store.opened == 3


def test_a_file_that_ends_early_is_refused() -> None:
    with pytest.raises(
        StorageError, match=r"reading s3://b/x: failed 8 times \(10 bytes at offset 90, expected 20"
    ):
        Pieces(Store().open, "s3://b/x").read(90, 20)


def test_a_caller_that_tries_again_itself_gets_the_first_failure() -> None:
    store = Store(1)
    pieces = Pieces(store.open, "s3://b/x")
    with pytest.raises(OSError, match="connection reset"):
        pieces.read_once(0, 5)
    assert pieces.read_once(0, 5) == DATA[:5]


def test_a_file_that_is_gone_is_found_missing_after_a_failure() -> None:
    store = Store(2)
    pieces = Pieces(store.open, "s3://b/x")
    pieces.read(0, 5)
    store.is_there = False
    with pytest.raises(FileNotFoundError):
        pieces.read(0, 5)
