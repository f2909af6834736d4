"""DiskANN's binary blocks: i32 rows, i32 columns and a row-major payload, alone or within a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from indexmill.formats.imports.mapped import MappedFile, damaged

#: Bytes before a payload.
HEADER_BYTES = 8


def read_bin(file: MappedFile, offset: int, dtype: DTypeLike, what: str) -> NDArray[Any]:
    """Map the block at `offset`, shape (rows, columns).

    Raises
    ------
    CorruptFile
        If it exceeds the file, or is empty.
    """
    rows, columns = (file.number(offset + at, "<i4", f"{what}: {name}") for at, name in _SHAPE)
    if rows < 1 or columns < 1:
        raise damaged(file.path, f"{what} at byte {offset:,}", "rows and columns", f"{rows:,} x {columns:,}")
    return file.array(offset + HEADER_BYTES, dtype, (rows, columns), what)


def open_bin(path: Path, dtype: DTypeLike, what: str) -> NDArray[Any]:
    """Map a file that consists of one block; raises errors as `read_bin`."""
    file = MappedFile(path)
    found = read_bin(file, 0, dtype, what)
    rows, columns = found.shape
    file.check_size(8 + found.nbytes, f"8 + {rows:,} rows x {columns:,} columns x {np.dtype(dtype).itemsize}")
    return found


_SHAPE = ((0, "rows"), (4, "columns"))
