"""The interface of a source of vectors, and its implementation over consecutive vector files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.file import VectorFile, Vectors, parts_with, starts_of
from indexmill.formats.sources.filesystem import InputFile

#: Rows of a batch: 24 MiB for 768-dimensional float32 rows.
DEFAULT_BATCH_ROWS = 8192
#: Largest dimension, far beyond any embedding: a larger one means a damaged header, and its batch would not fit memory.
MAX_DIM = 65536


@dataclass(frozen=True)
class VectorBatch:
    """Consecutive vectors of one file.

    Attributes
    ----------
    start : int
        Vector id of the first row.
    vectors : float32, float16, uint8 or int8 array, shape (n_rows, dim), C-contiguous, perhaps read-only
    ids : pyarrow.Array or None
        User ids: int64, uint64, string or binary, shape (n_rows,), without nulls.
    metadata : pyarrow.RecordBatch or None
    path : str
        File the rows come from.
    first_row : int
        Number of the first row in that file.
    """

    start: int
    vectors: Vectors
    ids: pa.Array | None
    metadata: pa.RecordBatch | None
    path: str
    first_row: int


class VectorSource(Protocol):
    """All vectors of one input.

    Attributes
    ----------
    n_vectors, dim : int
        Both at least 1.
    dtype : dtype
        float32, float16, uint8 or int8.
    id_type : str
        ``"none"``, ``"int64"``, ``"uint64"``, ``"string"`` or ``"binary"``.
    paths : list of str
        Files in vector-id order; local ones as plain paths.
    metadata_schema : pyarrow.Schema or None
    """

    n_vectors: int
    dim: int
    dtype: np.dtype[Any]
    id_type: str
    paths: list[str]
    metadata_schema: pa.Schema | None

    def batches(self, batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[VectorBatch]:
        """Yield all vectors in order; every batch except the last of a file has `batch_rows` rows.

        Raises
        ------
        InputError
            On an unreadable file, a null, or a row of another length; the message names file and row.
        """
        ...

    def read(self, rows: NDArray[np.int64]) -> Vectors:
        """Return single vectors.

        Parameters
        ----------
        rows : int64 array, shape (m,)
            Vector ids in any order, with duplicates.

        Returns
        -------
        vectors : array, shape (m, dim)

        Raises
        ------
        IndexError
            If a vector id is not in [0, n_vectors).
        InputError
            See `batches`.
        """
        ...


class JoinedSource:
    """Several vector files, one after the other.

    Parameters
    ----------
    files : sequence of VectorFile
    objects : sequence of InputFile
        Those of the files that are at URLs.

    Raises
    ------
    InputError
        If there are no vectors, the dimension exceeds `MAX_DIM`, or files differ in dimension, type, id type or
        metadata.
    """

    def __init__(self, files: Sequence[VectorFile], objects: Sequence[InputFile] = ()) -> None:
        self.objects = objects
        filled = [file for file in files if file.n_rows]
        if not filled:
            names = ", ".join(file.name for file in files[:3])
            raise InputError(f"{names}: no vectors; expected at least 1; give an input with rows")
        head = filled[0]
        if head.dim > MAX_DIM:
            raise InputError(
                f"{head.name}: dimension {head.dim:,}; expected at most {MAX_DIM:,}; the file may be damaged"
            )
        for file in filled[1:]:
            _check_alike(head, file)
        self.paths = [file.name for file in filled]
        self.dim, self.dtype, self.id_type = head.dim, head.dtype, head.id_type
        self.metadata_schema = head.metadata_schema
        self._files = filled
        self._starts = starts_of([file.n_rows for file in filled])
        self.n_vectors = int(self._starts[-1])

    def batches(self, batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[VectorBatch]:
        """Yield all vectors in order; see `VectorSource.batches`."""
        for start, file in zip(self._starts[:-1].tolist(), self._files, strict=True):
            for block in file.blocks(batch_rows):
                first = block.first_row
                yield VectorBatch(start + first, block.vectors, block.ids, block.metadata, file.name, first)

    def read(self, rows: NDArray[np.int64]) -> Vectors:
        """Return single vectors; see `VectorSource.read`."""
        rows = np.asarray(rows, np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < self.n_vectors):
            raise IndexError(f"vector ids {rows.min()} .. {rows.max()}; expected 0 .. {self.n_vectors - 1}")
        out = np.empty((len(rows), self.dim), self.dtype)
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        for i, wanted in parts_with(ascending, self._starts):
            self._files[i].take(ascending[wanted] - self._starts[i], out, order[wanted])
        return out


def _check_alike(head: VectorFile, file: VectorFile) -> None:
    schemas = [f.metadata_schema for f in (head, file)]
    for what, expected, got in (
        ("dimension", head.dim, file.dim),
        ("dtype", head.dtype, file.dtype),
        ("id type", head.id_type, file.id_type),
        ("metadata", *(None if schema is None else schema.to_string() for schema in schemas)),
    ):
        if expected != got:
            raise InputError(
                f"{file.name}: {what} {got}; expected {expected} as in {head.name}; "
                "convert one of them or index them separately"
            )
