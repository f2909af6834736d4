"""Vectors in Arrow IPC (Feather) files and in Arrow tables in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.arrow_columns import (
    TableFile,
    Wanted,
    choose_columns,
    decode_vectors,
    row_block,
)
from indexmill.formats.sources.file import RowBlock, Vectors, parts_with, rechunk
from indexmill.formats.sources.filesystem import InputFile, reading

_KIND = "an Arrow IPC file"
_MAGIC = b"ARROW1"
#: Bytes of vectors taken at a time, so that 32-bit list offsets do not overflow and little is copied.
_TAKE_BYTES = 8 << 20


class IpcPieces:
    """Record batches of an IPC file, read one at a time; local files are mapped.

    Raises
    ------
    InputError
        If the file is damaged, or is an IPC stream.
    """

    def __init__(self, file: InputFile) -> None:
        self.name = file.name
        self._file = file
        with reading(self.name, _KIND), self._open() as handle:
            if handle.read_at(len(_MAGIC), 0) != _MAGIC:
                raise InputError(
                    f"{self.name}: does not start with {_MAGIC.decode()}; expected an Arrow IPC file (Feather V2), "
                    "not a stream; write it with pyarrow.ipc.new_file or pyarrow.feather.write_feather"
                )
            reader = pa.ipc.open_file(handle)
            self.schema = reader.schema
            self.rows = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]

    def batches(self, wanted: Sequence[int], columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the record batches with numbers `wanted`, with at least these columns."""
        included = sorted(self.schema.get_field_index(column) for column in columns)
        options = pa.ipc.IpcReadOptions(included_fields=included)
        with reading(self.name, _KIND), self._open() as handle:
            reader = pa.ipc.open_file(handle, options=options)
            for i in wanted:
                batch = reader.get_batch(i)
                batch.validate(full=True)  # offsets in a damaged file may point anywhere
                yield batch

    def _open(self) -> pa.NativeFile:
        return pa.memory_map(self._file.path) if self._file.is_local else self._file.open()


class TablePieces:
    """Record batches of a table in memory."""

    def __init__(self, table: pa.Table, name: str) -> None:
        self.name = name
        self.schema = table.schema
        self._batches = table.to_batches()
        self.rows = [batch.num_rows for batch in self._batches]

    def batches(self, wanted: Sequence[int], columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the record batches with numbers `wanted`, with at least these columns."""
        for i in wanted:
            yield self._batches[i]


class ArrowVectors(TableFile):
    """Vectors in a sequence of record batches.

    Raises
    ------
    InputError
        If a column is unusable.
    """

    def __init__(self, pieces: IpcPieces | TablePieces, wanted: Wanted) -> None:
        self._pieces = pieces
        with reading(pieces.name, "an Arrow table"):
            columns = choose_columns(pieces.schema, pieces.name, wanted)
        filled = [i for i, n_rows in enumerate(pieces.rows) if n_rows]
        first = next(iter(pieces.batches(filled[:1], [columns.vectors])), None)
        super().__init__(pieces.name, columns, first, pieces.rows)

    def blocks(self, batch_rows: int) -> Iterator[RowBlock]:
        """Yield all rows in order; see `VectorFile.blocks`."""
        yield from rechunk(self._decoded(batch_rows), batch_rows)

    def take(self, rows: NDArray[np.int64], out: Vectors, positions: NDArray[np.int64]) -> None:
        """Read single rows; see `VectorFile.take`."""
        wanted = parts_with(rows, self._starts)
        batches = self._pieces.batches([piece for piece, _ in wanted], [self._columns.vectors])
        step = max(1, _TAKE_BYTES // (self.dim * self.dtype.itemsize))
        for (piece, cut), batch in zip(wanted, batches, strict=True):
            lists = batch.column(self._columns.vectors)
            lists = lists.storage if isinstance(lists, pa.ExtensionArray) else lists
            for begin in range(cut.start, cut.stop, step):
                part = slice(begin, min(begin + step, cut.stop))
                found = lists.take(pa.array(rows[part] - self._starts[piece]))
                out[positions[part]] = decode_vectors(found, self.dim, self.dtype, self.name, rows[part])

    def _decoded(self, batch_rows: int) -> Iterator[RowBlock]:
        everything = range(len(self._pieces.rows))
        for start, batch in zip(
            self._starts.tolist(), self._pieces.batches(everything, self._columns.names), strict=False
        ):
            for first in range(0, batch.num_rows, batch_rows):
                part = batch.slice(first, batch_rows)
                yield row_block(part, self._columns, self.dim, self.name, start + first)
