"""Vectors in binary files with rows of fixed size: fvecs, bvecs, fbin, f16bin, u8bin and i8bin.

Layouts (little-endian): ``.fvecs`` and ``.bvecs`` repeat {i32 dim, dim components}; ``.fbin``, ``.f16bin``,
``.u8bin`` and ``.i8bin`` have {u32 n, u32 dim}, then n rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.file import RowBlock, Vectors, narrow, take_by_runs, vector_dtype
from indexmill.formats.sources.filesystem import InputFile, reading

#: Component type by suffix.
VECS_DTYPES: dict[str, np.dtype[Any]] = {".fvecs": np.dtype("<f4"), ".bvecs": np.dtype("u1")}
BIN_DTYPES: dict[str, np.dtype[Any]] = {
    ".fbin": np.dtype("<f4"),
    ".f16bin": np.dtype("<f2"),
    ".u8bin": np.dtype("u1"),
    ".i8bin": np.dtype("i1"),
}


class FixedRowFile:
    """Rows of equal size at ``header_bytes + row * row_bytes``.

    Parameters
    ----------
    stored : dtype
        Component type in the file.
    prefix_bytes : int
        4 if each row starts with its dimension, else 0.
    """

    id_type = "none"
    metadata_schema: pa.Schema | None = None

    def __init__(
        self,
        file: InputFile,
        n_rows: int,
        dim: int,
        stored: np.dtype[Any],
        header_bytes: int,
        prefix_bytes: int = 0,
    ) -> None:
        self.name = file.name
        self.n_rows = n_rows
        self.dim = dim
        self.dtype = vector_dtype(stored, file.name)
        self._file = file
        self._stored = stored
        self._header_bytes = header_bytes
        self._prefix_bytes = prefix_bytes
        self._row_bytes = prefix_bytes + dim * stored.itemsize

    def blocks(self, batch_rows: int) -> Iterator[RowBlock]:
        """Yield all rows in order; see `VectorFile.blocks`."""
        with reading(self.name, "a vector file"), self._file.open() as handle:
            for first in range(0, self.n_rows, batch_rows):
                yield RowBlock(first, self._read_range(handle, first, min(first + batch_rows, self.n_rows)))

    def take(self, rows: NDArray[np.int64], out: Vectors, positions: NDArray[np.int64]) -> None:
        """Read single rows; see `VectorFile.take`."""
        with reading(self.name, "a vector file"), self._file.open() as handle:
            take_by_runs(rows, out, positions, self._row_bytes, lambda a, b: self._read_range(handle, a, b))

    def _read_range(self, handle: pa.NativeFile, first: int, last: int) -> Vectors:
        wanted = (last - first) * self._row_bytes
        offset = self._header_bytes + first * self._row_bytes
        data = handle.read_at(wanted, offset)
        if len(data) != wanted:
            raise InputError(
                f"{self.name}: row {first + len(data) // self._row_bytes}: the file ends inside it: expected "
                f"{wanted:,} bytes at offset {offset:,}, got {len(data):,}; it changed while it was read, "
                "start again"
            )
        raw = np.frombuffer(data, np.uint8).reshape(last - first, self._row_bytes)
        if self._prefix_bytes:
            self._check_dims(raw, first)
            raw = np.ascontiguousarray(raw[:, self._prefix_bytes :])
        return narrow(raw.view(self._stored), self.dtype, self.name, range(first, last))

    def _check_dims(self, raw: NDArray[np.uint8], first: int) -> None:
        dims = np.ascontiguousarray(raw[:, :4]).view("<i4").ravel()
        bad = np.flatnonzero(dims != self.dim)
        if len(bad):
            row = first + int(bad[0])
            raise InputError(
                f"{self.name}: row {row}: dimension {dims[bad[0]]}; expected {self.dim} as in row 0; "
                "all rows must have one dimension, write the file again"
            )


def open_vecs(file: InputFile) -> FixedRowFile:
    """Open a ``.fvecs`` or ``.bvecs`` file.

    Raises
    ------
    InputError
        If the size is not a multiple of the first row's size; the message shows the arithmetic.
    """
    stored = VECS_DTYPES[file.suffix]
    with reading(file.name, "a vector file"), file.open() as handle:
        size = handle.size()
        head = handle.read_at(4, 0)
    if size == 0:
        return FixedRowFile(file, 0, 0, stored, 0, 4)
    if len(head) < 4:
        raise InputError(
            f"{file.name}: {size} bytes; expected at least 4 for a dimension; write the file again"
        )
    dim = int(np.frombuffer(head, "<i4")[0])
    if dim < 1:
        raise InputError(
            f"{file.name}: row 0: dimension {dim}; expected at least 1; is this a {file.suffix} file?"
        )
    row_bytes = 4 + dim * stored.itemsize
    if size % row_bytes:
        raise InputError(
            f"{file.name}: {size:,} bytes; row 0 has dimension {dim}, so a row takes 4 + {dim} x {stored.itemsize} = "
            f"{row_bytes:,} bytes; expected a multiple of that, got {size // row_bytes:,} rows and "
            f"{size % row_bytes:,} bytes more; the file is truncated or its rows differ in dimension"
        )
    return FixedRowFile(file, size // row_bytes, dim, stored, 0, 4)


def open_bin(file: InputFile) -> FixedRowFile:
    """Open a ``.fbin``, ``.f16bin``, ``.u8bin`` or ``.i8bin`` file.

    Raises
    ------
    InputError
        If header and file size disagree; the message shows the arithmetic.
    """
    stored = BIN_DTYPES[file.suffix]
    with reading(file.name, "a vector file"), file.open() as handle:
        size = handle.size()
        head = handle.read_at(8, 0)
    if len(head) < 8:
        raise InputError(
            f"{file.name}: {size} bytes; expected at least 8 for a header of u32 rows, u32 dim; write the "
            "file again"
        )
    n_rows, dim = (int(value) for value in np.frombuffer(head, "<u4"))
    expected = 8 + n_rows * dim * stored.itemsize
    if size != expected:
        raise InputError(
            f"{file.name}: header says {n_rows:,} rows x {dim:,} dimensions, so expected 8 + {n_rows} x {dim} x "
            f"{stored.itemsize} = {expected:,} bytes; got {size:,}; the file is truncated or of another type"
        )
    if n_rows and not dim:
        raise InputError(f"{file.name}: header says dimension 0; expected at least 1; write the file again")
    return FixedRowFile(file, n_rows, dim, stored, 8)
