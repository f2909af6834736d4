"""Append files of the TempFiles policy, and the rows of clusters that both assignment policies write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.chunks.reader import Records, rows_of
from indexmill.formats.chunks.tally import Tally, forget
from indexmill.formats.errors import CorruptFile

#: Bytes of a read: most cluster files are smaller, and are read at once.
READ_BYTES = 8 << 20


def member_dtype(vector_bytes: int) -> np.dtype[np.void]:
    """Return the type of a row of a cluster: the vector id, then the bytes of the vector."""
    return np.dtype([("id", "<u4"), ("vector", f"V{vector_bytes}")])


def members(records: Records, order: NDArray[np.integer] | slice = slice(None)) -> NDArray[np.void]:
    """Return the records in `order` as rows of `member_dtype`."""
    payload = rows_of(records.payload)
    ids = records.values[order]
    rows = np.empty(len(ids), member_dtype(payload.itemsize))
    rows["id"] = ids
    rows["vector"] = payload[order]
    return rows


class AppendFiles:
    """Files in one folder, one for each key; an append opens and closes the file, so any number may exist.

    Parameters
    ----------
    folder : path-like
        An empty directory.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = str(folder)

    def append(self, key: int, data: memoryview, tally: Tally) -> None:
        """Append bytes to the file of `key`, which the first call creates."""
        handle = os.open(self._path(key), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        tally.opens += 1
        try:
            done = 0
            while done < len(data):
                count = os.write(handle, data[done:])
                tally.wrote(count)
                done += count
        finally:
            os.close(handle)
            tally.closes += 1

    def copy(self, key: int, length: int, out: BinaryIO, tally: Tally) -> None:
        """Write the file of `key` to `out`.

        Raises
        ------
        CorruptFile
            If it has not `length` bytes.
        """
        handle = os.open(self._path(key), os.O_RDONLY)
        tally.opens += 1
        try:
            done = 0
            while done < length:
                data = os.read(handle, min(length - done, READ_BYTES))
                tally.read(len(data))
                if not data:
                    raise CorruptFile(
                        f"{self._path(key)}: offset {done}: expected {length:,} bytes, got {done:,}; "
                        "it changed while it was used; start again"
                    )
                out.write(data)
                done += len(data)
        finally:
            os.close(handle)
            tally.closes += 1

    def forget(self, key: int) -> None:
        """Drop the file of `key` from the page cache."""
        forget(self._path(key))

    def _path(self, key: int) -> str:
        return f"{self._folder}/{key:08d}"


def as_bytes(rows: NDArray[Any]) -> memoryview:
    """Return the bytes of contiguous rows without a copy."""
    return rows.view(np.uint8).data
