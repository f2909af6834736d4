"""Vectors in Arrow IPC (Feather) files and in Arrow tables in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.arrow_columns import choose_columns, decode_vectors, first_dim, row_block
from indexmill.formats.sources.file import RowBlock, Vectors, rechunk
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


class ArrowVectors:
    """Vectors in a sequence of record batches.

    Raises
    ------
    InputError
        If a column is unusable.
    """

    def __init__(
        self,
        pieces: IpcPieces | TablePieces,
        column: str | None,
        id_column: str | None,
        metadata_columns: Sequence[str],
    ) -> None:
        self.name = pieces.name
        self._pieces = pieces
        with reading(self.name, "an Arrow table"):
            self._columns = choose_columns(pieces.schema, self.name, column, id_column, metadata_columns)
        filled = [i for i, n_rows in enumerate(pieces.rows) if n_rows]
        first = next(iter(pieces.batches(filled[:1], [self._columns.vectors])), None)
        self.dim = first_dim(self._columns, first, self.name)
        self.dtype = self._columns.dtype
        self.id_type = self._columns.id_type
        self.metadata_schema = self._columns.metadata_schema
        self._starts = np.concatenate([[0], np.cumsum(pieces.rows, dtype=np.int64)]).astype(np.int64)
        self.n_rows = int(self._starts[-1])

    def blocks(self, batch_rows: int) -> Iterator[RowBlock]:
        """Yield all rows in order; see `VectorFile.blocks`."""
        yield from rechunk(self._decoded(batch_rows), batch_rows)

    def take(self, rows: NDArray[np.int64], out: Vectors, positions: NDArray[np.int64]) -> None:
        """Read single rows; see `VectorFile.take`."""
        cuts = np.searchsorted(rows, self._starts)
        wanted = np.flatnonzero(np.diff(cuts)).tolist()
        step = max(1, _TAKE_BYTES // (self.dim * self.dtype.itemsize))
        for piece, batch in zip(wanted, self._pieces.batches(wanted, [self._columns.vectors]), strict=True):
            lists = batch.column(self._columns.vectors)
            lists = lists.storage if isinstance(lists, pa.ExtensionArray) else lists
            for begin in range(cuts[piece], cuts[piece + 1], step):
                part = slice(begin, min(begin + step, cuts[piece + 1]))
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
