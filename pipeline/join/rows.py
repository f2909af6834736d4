"""Files with one row a query, written in order and read in ranges: lists to probe, and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.scan import Nearest
from indexmill.formats.errors import FormatError
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.formats.pagefile.reader import PageFile

CHOSEN_KIND, PART_KIND = "CELL", "PART"
#: One neighbour in one batch or several.
FOUND = np.dtype([("key", "<f8"), ("id", "<u4")])


class RowFile:
    """A file with one section, ``rows``, of rows of one size.

    Parameters
    ----------
    path : Path
    kind : str
    n_rows : int
    dtype : numpy dtype
    width : int
        Items of a row.

    Raises
    ------
    FormatError, OSError
        If it is missing, or damaged at its ends.
    """

    def __init__(self, path: Path, kind: str, n_rows: int, dtype: Any, width: int) -> None:
        self._file = PageFile(path, kind)
        self._dtype, self._width = np.dtype(dtype), width
        try:
            self._file.payload_bytes("rows", n_rows * self._row_bytes)
        except FormatError:
            self._file.close()
            raise

    @property
    def _row_bytes(self) -> int:
        return int(self._dtype.itemsize) * self._width

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def verify(self) -> None:
        """Look at every page; see `PageFile.verify`."""
        self._file.verify()

    def read(self, first: int, last: int) -> NDArray[Any]:
        """Return rows `first` to `last`, each page checked: shape (last - first, width)."""
        begin, end = first * self._row_bytes, last * self._row_bytes
        page = begin // PAGE_BYTES
        data = self._file.read_pages("rows", page, -(-end // PAGE_BYTES) - page)
        count = (last - first) * self._width
        return np.frombuffer(data, self._dtype, count, begin - page * PAGE_BYTES).reshape(-1, self._width)


def is_whole(path: Path, kind: str, n_rows: int, dtype: Any, width: int) -> bool:
    """Tell whether a file exists and is as it was written; a damaged one is deleted."""
    try:
        with RowFile(path, kind, n_rows, dtype, width) as file:
            file.verify()
    except FileNotFoundError:
        return False
    except FormatError:
        path.unlink(missing_ok=True)
        return False
    return True


def as_rows(found: Nearest) -> NDArray[Any]:
    """Return neighbours, (n, k), as rows of a file."""
    rows = np.empty(found.ids.shape, FOUND)
    rows["key"], rows["id"] = found.keys, found.ids
    return rows


def as_nearest(rows: NDArray[Any]) -> Nearest:
    """Return rows of a file as neighbours."""
    return Nearest(np.ascontiguousarray(rows["key"]), np.ascontiguousarray(rows["id"]))
