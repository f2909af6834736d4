"""Vectors in ``.npy`` files and in arrays in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from tokenize import TokenError
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import InputError, first_line
from indexmill.formats.sources.arrow_columns import metadata_schema
from indexmill.formats.sources.binary import FixedRowFile
from indexmill.formats.sources.file import RowBlock, Vectors, narrow, vector_dtype
from indexmill.formats.sources.filesystem import InputFile, reading
from indexmill.formats.sources.views import without_views


def open_npy(file: InputFile) -> FixedRowFile:
    """Open a ``.npy`` file with one array of shape (n_vectors, dim) in C order.

    Raises
    ------
    InputError
        On a damaged header, an unsupported shape, order or type, or a size that disagrees with the header.
    """
    with reading(file.name, "a .npy file"), file.open() as handle:
        size = handle.size()
        shape, fortran, stored, offset = _read_header(handle, file.name)
    check_shape(shape, file.name)
    vector_dtype(stored, file.name)
    expected = offset + math.prod(shape) * stored.itemsize
    if size != expected:
        raise InputError(
            f"{file.name}: header says shape {shape} of {stored}, so expected {offset} + {shape[0]} x {shape[1]} x "
            f"{stored.itemsize} = {expected:,} bytes; got {size:,}; the file is truncated or damaged"
        )
    if fortran and min(shape) > 1:
        raise InputError(
            f"{file.name}: stored column by column (Fortran order); expected C order; "
            "save numpy.ascontiguousarray(array) instead"
        )
    return FixedRowFile(file, shape[0], shape[1], stored, offset)


def _read_header(handle: pa.NativeFile, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    try:
        version = np.lib.format.read_magic(handle)
        if version == (1, 0):
            shape, fortran, stored = np.lib.format.read_array_header_1_0(handle)
        elif version == (2, 0):
            shape, fortran, stored = np.lib.format.read_array_header_2_0(handle)
        else:
            raise ValueError(f"version {version} of the format")
    except (ValueError, SyntaxError, TypeError, RecursionError, TokenError) as error:
        reason = first_line(error)
        raise InputError(
            f"{name}: no usable .npy header ({reason}); expected version 1.0 or 2.0 of an array of numbers; "
            "save it again with numpy.save"
        ) from error
    return shape, fortran, stored, handle.tell()


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Check that a shape is (n_vectors, dim) with dim at least 1.

    Raises
    ------
    InputError
        If it is not.
    """
    if len(shape) != 2:
        raise InputError(
            f"{name}: array of shape {shape}; expected two dimensions (n_vectors, dim); reshape it"
        )
    if shape[1] < 1:
        raise InputError(f"{name}: array of shape {shape}; expected at least one component a vector")


class ArrayFile:
    """A 2-D array in memory, with optional ids and metadata.

    Parameters
    ----------
    vectors : array, shape (n_vectors, dim), any order
    ids : pyarrow.Array, optional
        Length n_vectors, of one of the id types, without nulls.
    metadata : pyarrow.Table, optional
        n_vectors rows.

    Raises
    ------
    InputError
        If the shape or type is unsupported, or lengths differ.
    """

    def __init__(
        self, name: str, vectors: Vectors, ids: pa.Array | None, id_type: str, metadata: pa.Table | None
    ) -> None:
        check_shape(vectors.shape, name)
        self.name = name
        self.n_rows, self.dim = vectors.shape
        self.dtype = vector_dtype(vectors.dtype, name)
        self.id_type = id_type
        self.metadata_schema = None
        if metadata is not None:
            self.metadata_schema = metadata_schema(metadata.schema, name).with_metadata(
                metadata.schema.metadata
            )
        for what, column in (("ids", ids), ("metadata", metadata)):
            if column is not None and len(column) != self.n_rows:
                raise InputError(
                    f"{name}: {len(column):,} rows of {what} for {self.n_rows:,} vectors; expected one for "
                    "each"
                )
        self._vectors, self._ids = vectors, ids
        self._metadata = None if metadata is None else metadata.combine_chunks()

    def blocks(self, batch_rows: int) -> Iterator[RowBlock]:
        """Yield all rows in order; see `VectorFile.blocks`."""
        for first in range(0, self.n_rows, batch_rows):
            last = min(first + batch_rows, self.n_rows)
            vectors = narrow(self._vectors[first:last], self.dtype, self.name, range(first, last))
            ids = None if self._ids is None else self._ids.slice(first, last - first)
            yield RowBlock(first, vectors, ids, self._metadata_rows(first, last - first))

    def take(self, rows: NDArray[np.int64], out: Vectors, positions: NDArray[np.int64]) -> None:
        """Copy single rows; see `VectorFile.take`."""
        out[positions] = narrow(self._vectors[rows], self.dtype, self.name, rows)

    def _metadata_rows(self, first: int, n_rows: int) -> pa.RecordBatch | None:
        if self._metadata is None:
            return None
        batch = self._metadata.slice(first, n_rows).combine_chunks().to_batches()[0]
        columns = [without_views(column) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.metadata_schema)
