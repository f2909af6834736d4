"""Mapped files of other programs, whose stated sizes are checked against the file before data is read."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from indexmill.formats.errors import CorruptFile, ForeignFile, InputError


def damaged(path: str | Path, where: str, expected: object, got: object, beside: str = "") -> CorruptFile:
    """Return the error for invalid bytes of `path`; `beside` is a further remedy."""
    error = CorruptFile(
        f"{path}: {where}: expected {expected}, got {got}; copy the file again, or write the index again{beside}"
    )
    error.path = str(path)
    return error


#: `damaged` for files of codes, which an import does not need.
damaged_codes = partial(damaged, beside=", or train codes with --pq-bytes")


def not_such_a_file(path: str | Path, where: str, expected: object, got: object, action: str) -> ForeignFile:
    """Return the error for another file than requested, or for an unsupported kind."""
    error = ForeignFile(f"{path}: {where}: expected {expected}, got {got}; {action}")
    error.path = str(path)
    return error


class MappedFile:
    """A file mapped through the page cache.

    Attributes
    ----------
    path : Path
    size : int
        Bytes.

    Raises
    ------
    InputError
        If there is no such file.
    CorruptFile
        If it is empty.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"{path}: no such file; check the path")
        self.size = os.stat(self.path).st_size
        if not self.size:
            raise damaged(path, "size of the file", "at least one byte", 0)
        self._bytes = np.memmap(self.path, np.uint8, "r")

    def array(self, offset: int, dtype: DTypeLike, shape: int | Sequence[int], what: str) -> NDArray[Any]:
        """Map an array, aligned or not.

        Parameters
        ----------
        offset : int
            Offset of the first byte.
        shape : int or sequence of int
            Not negative.
        what : str
            Name of the array in the error.

        Raises
        ------
        CorruptFile
            If it exceeds the file.
        """
        kind = np.dtype(dtype)
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        need = math.prod(dims) * kind.itemsize
        if offset + need > self.size:
            sizes = " x ".join(f"{dim:,}" for dim in dims)
            raise damaged(
                self.path,
                f"{what} at byte {offset:,}",
                f"{sizes} x {kind.itemsize} = {need:,} bytes",
                f"{max(0, self.size - offset):,} to the end of the file",
            )
        found: NDArray[Any] = self._bytes[offset : offset + need].view(kind).reshape(dims)
        return found

    def number(self, offset: int, dtype: DTypeLike, what: str) -> int:
        """Return one integer; raises errors as `array`."""
        return int(self.array(offset, dtype, 1, what)[0])

    def check_size(self, expected: int, arithmetic: str) -> None:
        """Check the size of the file against that in its header.

        Raises
        ------
        CorruptFile
            If they differ.
        """
        if self.size != expected:
            raise damaged(
                self.path, "size of the file", f"{arithmetic} = {expected:,} bytes", f"{self.size:,}"
            )
