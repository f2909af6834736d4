"""A file on storage that is read in pieces, each of which is tried again where storage fails for a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from indexmill.formats.urls.retry import retried


class Pieces:
    """A file on storage for reads at any place, from several threads.

    It is opened for the first piece, and again after a piece that failed: opening asks storage for the size.

    Parameters
    ----------
    open_file : callable
        Opens the file.
    name : str
        What errors call it.
    """

    def __init__(self, open_file: Callable[[], pa.NativeFile], name: str) -> None:
        self._open, self.name = open_file, name
        self._file: pa.NativeFile | None = None
        self._lock = threading.Lock()

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes at `offset`, tried as often as other calls to storage.

        Raises
        ------
        FileNotFoundError
            If the file is gone.
        StorageError
            If storage refuses, or the file ends before.
        """
        return retried(lambda: self.read_once(offset, length), f"reading {self.name}")

    def read_once(self, offset: int, length: int) -> bytes:
        """Return `length` bytes at `offset`, for a caller that tries again itself.

        Raises
        ------
        OSError, EOFError, ArrowException
            If storage refuses, or the file ends before.
        """
        file = self._opened()
        try:
            data: bytes = file.read_at(length, offset)
            if len(data) != length:
                raise EOFError(f"{len(data):,} bytes at offset {offset:,}, expected {length:,}")
        except Exception:
            with self._lock:
                if self._file is file:  # else another thread has opened it again
                    self._file = None
            raise
        return data

    def _opened(self) -> pa.NativeFile:
        with self._lock:
            if self._file is None:
                self._file = self._open()
            return self._file
