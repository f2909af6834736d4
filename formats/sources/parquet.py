"""Vectors in Parquet files: streamed in order, or read at random by row groups, which are cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.sources.arrow_columns import (
    TableFile,
    Wanted,
    choose_columns,
    decode_vectors,
    row_block,
)
from indexmill.formats.sources.file import RowBlock, Vectors, parts_with, rechunk
from indexmill.formats.sources.filesystem import InputFile, reading

#: Bytes of decoded row groups cached for random access; a larger row group is streamed instead.
CACHE_BYTES = 128 << 20
#: A small buffer for column chunks, so that a huge row group needs little memory; pre-buffering would keep every row
#: group in memory until the file is closed. Pages that have checksums are checked.
_READING: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False, "page_checksum_verification": True}
_KIND = "a Parquet file"


class RowGroupCache:
    """Cache of the decoded vectors of recently used row groups, at most `limit_bytes` in total.

    All files of a source share one cache. It is pickled empty, so that sources are small when sent to processes.
    """

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._entries: OrderedDict[tuple[str, int], Vectors] = OrderedDict()
        self.held_bytes = 0
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return RowGroupCache, (self.limit_bytes,)

    def get(self, key: tuple[str, int], load: Callable[[], Vectors]) -> Vectors:
        """Return the array that `load` returns for `key`, of at most `limit_bytes`, from the cache if possible."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        vectors = load()
        with self._lock:
            if key not in self._entries:
                self._entries[key] = vectors
                self.held_bytes += vectors.nbytes
            while self.held_bytes > self.limit_bytes:
                self.held_bytes -= self._entries.popitem(last=False)[1].nbytes
        return vectors


class ParquetVectors(TableFile):
    """One Parquet file.

    Parameters
    ----------
    file : InputFile
    wanted : Wanted
    cache : RowGroupCache

    Raises
    ------
    InputError
        If the file is damaged, or a column is unusable.
    """

    def __init__(self, file: InputFile, wanted: Wanted, cache: RowGroupCache) -> None:
        self._file, self._cache = file, cache
        with reading(file.name, _KIND), file.open() as handle:
            parquet = pq.ParquetFile(handle, **_READING)
            self._footer = parquet.metadata
            columns = choose_columns(parquet.schema_arrow, file.name, wanted)
            first = None
            if columns.list_size is None and self._footer.num_rows:
                first = next(parquet.iter_batches(1, columns=[columns.vectors]), None)
            groups = [self._footer.row_group(i).num_rows for i in range(self._footer.num_row_groups)]
            super().__init__(file.name, columns, first, groups)

    def blocks(self, batch_rows: int) -> Iterator[RowBlock]:
        """Yield all rows in order; see `VectorFile.blocks`."""
        with reading(self.name, _KIND), self._file.open() as handle:
            yield from rechunk(self._decoded(self._reader(handle), batch_rows), batch_rows)

    def take(self, rows: NDArray[np.int64], out: Vectors, positions: NDArray[np.int64]) -> None:
        """Read single rows; see `VectorFile.take`."""
        with reading(self.name, _KIND), self._file.open() as handle:
            parquet = self._reader(handle)
            for group, wanted in parts_with(rows, self._starts):
                local = rows[wanted] - self._starts[group]
                self._take_group(parquet, group, local, out, positions[wanted])

    def _take_group(
        self,
        parquet: pq.ParquetFile,
        group: int,
        rows: NDArray[np.int64],
        out: Vectors,
        positions: NDArray[np.int64],
    ) -> None:
        n_rows = int(self._starts[group + 1] - self._starts[group])
        if n_rows * self.dim * self.dtype.itemsize <= self._cache.limit_bytes:
            vectors = self._cache.get((self.name, group), lambda: self._load_group(parquet, group, n_rows))
            out[positions] = vectors[rows]
            return
        begin = 0
        for first, vectors in self._group_pieces(parquet, group):
            end = int(np.searchsorted(rows, first + len(vectors)))
            out[positions[begin:end]] = vectors[rows[begin:end] - first]
            begin = end
            if begin == len(rows):
                return

    def _load_group(self, parquet: pq.ParquetFile, group: int, n_rows: int) -> Vectors:
        vectors = np.empty((n_rows, self.dim), self.dtype)
        for first, piece in self._group_pieces(parquet, group):
            vectors[first : first + len(piece)] = piece
        return vectors

    def _group_pieces(self, parquet: pq.ParquetFile, group: int) -> Iterator[tuple[int, Vectors]]:
        """Yield (first row within the group, vectors) for all pieces of a row group."""
        first = 0
        batch_rows = max(1, (8 << 20) // (self.dim * 4))
        name = self._columns.vectors
        for batch in parquet.iter_batches(batch_rows, row_groups=[group], columns=[name]):
            start = int(self._starts[group]) + first
            rows = range(start, start + batch.num_rows)
            yield first, decode_vectors(batch.column(name), self.dim, self.dtype, self.name, rows)
            first += batch.num_rows

    def _decoded(self, parquet: pq.ParquetFile, batch_rows: int) -> Iterator[RowBlock]:
        first = 0
        for batch in parquet.iter_batches(batch_rows, columns=self._columns.names):
            if batch.num_rows:
                batch.validate(full=True)  # Parquet requires UTF-8, but it has not been checked yet
                yield row_block(batch, self._columns, self.dim, self.name, first)
            first += batch.num_rows

    def _reader(self, handle: pa.NativeFile) -> pq.ParquetFile:
        return pq.ParquetFile(handle, metadata=self._footer, **_READING)
