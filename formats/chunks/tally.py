"""Counted system calls on files, and calls that sync or drop cached pages."""

from __future__ import annotations

import ctypes
import io
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

_BUFFERED_BYTES = 1 << 20  # small writes reach the system together


@dataclass
class Tally:
    """Counts of system calls on files, and of their bytes. One thread at a time may count reads, and one writes.

    Attributes
    ----------
    opens, reads, writes, syncs, closes : int
        Calls; a partial read or write and its continuation count as two.
    bytes_read, bytes_written : int
    """

    opens: int = 0
    reads: int = 0
    writes: int = 0
    syncs: int = 0
    closes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def operations(self) -> int:
        """Number of calls of any kind."""
        return self.opens + self.reads + self.writes + self.syncs + self.closes

    def as_dict(self) -> dict[str, int]:
        """Return all counts, and the sum of calls."""
        return {**asdict(self), "operations": self.operations}

    def read(self, count: int) -> None:
        """Count a read of `count` bytes."""
        self.reads += 1
        self.bytes_read += count

    def wrote(self, count: int) -> None:
        """Count a write of `count` bytes."""
        self.writes += 1
        self.bytes_written += count


class _CountedFile(io.FileIO):
    """A new file whose writes are counted when they reach the system, below any buffer."""

    def __init__(self, path: str | Path, tally: Tally) -> None:
        super().__init__(path, "w")
        self._tally = tally
        tally.opens += 1

    def write(self, data: Any, /) -> int:
        """Write as `io.FileIO` does."""
        count = super().write(data)
        self._tally.wrote(count)
        return count

    def close(self) -> None:
        """Close as `io.FileIO` does."""
        if not self.closed:
            self._tally.closes += 1
        super().close()


def create(path: str | Path, tally: Tally | None = None) -> BinaryIO:
    """Open a file for buffered writing; an existing file is emptied."""
    return io.BufferedWriter(_CountedFile(path, tally or Tally()), _BUFFERED_BYTES)


def sync(path: str | Path, tally: Tally) -> None:
    """Wait until all data written to a file or directory is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    tally.opens += 1
    tally.syncs += 1
    tally.closes += 1


def sync_filesystem(folder: str | Path, tally: Tally) -> None:
    """Wait until all data written to the file system of `folder` is on the disk: one call for many files."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:  # no Linux
        os.sync()
    else:
        handle = os.open(folder, os.O_RDONLY)
        try:
            if syncfs(handle):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(folder))
        finally:
            os.close(handle)
        tally.opens += 1
        tally.closes += 1
    tally.syncs += 1


def forget(path: str | Path) -> None:
    """Drop a file's synced pages from the page cache, so that the next read comes from the disk.

    Does nothing on systems without the call (not Linux).
    """
    if not hasattr(os, "posix_fadvise"):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
