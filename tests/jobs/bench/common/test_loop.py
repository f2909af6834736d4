"""Loop devices over memory that are held to rates; they need root."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexmill.formats.chunks.tally import forget
from indexmill.jobs.bench.common import loop
from indexmill.jobs.bench.common.loop import Drive, NoDrives, Rates

MB = 1_000_000
FILE_BYTES = 6 * MB


@pytest.fixture
def made() -> Iterator[Drive]:
    try:
        with loop.drive(4 * FILE_BYTES) as one:
            yield one
    except NoDrives as reason:
        pytest.skip(str(reason))
    assert not one.folder.parent.exists()


def write(path: Path) -> float:
    """Write a file and wait until the drive has it; return the seconds."""
    began = time.perf_counter()
    with open(path, "wb") as file:
        file.write(os.urandom(FILE_BYTES))
        file.flush()
        os.fdatasync(file.fileno())  # tests leave out fsync
    return time.perf_counter() - began


def read(path: Path) -> float:
    """Read a file from the drive; return the seconds."""
    forget(path)
    began = time.perf_counter()
    path.read_bytes()
    return time.perf_counter() - began


def test_a_drive_that_is_held_reads_and_writes_at_its_rates_and_not_afterwards(made: Drive) -> None:
    try:
        with loop.held(made, Rates(read=20, write=10)):
            slow = write(made.folder / "slow")
            assert slow > 0.4
            assert read(made.folder / "slow") > 0.2
    except NoDrives as reason:
        pytest.skip(str(reason))
    assert write(made.folder / "quick") < slow


def test_a_drive_is_a_device_of_its_own_and_gone_afterwards() -> None:
    try:
        with loop.drive(FILE_BYTES) as one:
            number = one.folder.stat().st_dev
            assert one.number == f"{os.major(number)}:{os.minor(number)}"
            assert number != one.folder.parent.stat().st_dev
            (one.folder / "file").write_bytes(bytes(FILE_BYTES))
    except NoDrives as reason:
        pytest.skip(str(reason))
    assert not one.folder.parent.exists()
    assert str(one.folder) not in subprocess.run(["mount"], capture_output=True, text=True).stdout


def test_nothing_is_left_of_a_drive_whose_block_fails() -> None:
    folder = Path("none")

    def fails() -> None:
        nonlocal folder
        with loop.drive(FILE_BYTES) as one, loop.held(one, Rates(1, 1)):
            folder = one.folder
            raise KeyError("mine")

    try:
        with pytest.raises(KeyError, match="mine"):
            fails()
    except NoDrives as reason:
        pytest.skip(str(reason))
    assert not folder.parent.exists()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop.shutil, "which", lambda command: None if command == "losetup" else command)
    with pytest.raises(NoDrives, match="losetup: not installed"), loop.drive(FILE_BYTES):
        pass
    monkeypatch.setattr(loop, "mounts", lambda kind: iter([]))
    with pytest.raises(NoDrives, match="blkio"), loop.held(Drive(Path(), "7:0"), Rates(1, 1)):
        pass
