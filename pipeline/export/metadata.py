"""Metadata by slot: the table is stored in vector-id order and read at random, in pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

#: Rows of a batch: what one lookup touches at least.
_ROWS = 1 << 16


class MappedMetadata:
    """The rows of a Parquet file, copied to an uncompressed Arrow file at `path` that is mapped.

    Memory: a batch while it is copied; then the page cache holds what is read.
    """

    def __init__(self, parquet: pq.ParquetFile, path: Path) -> None:
        schema = pa.schema([_plain(field) for field in parquet.schema_arrow])
        sizes = []
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in parquet.iter_batches(_ROWS):
                for plain in pa.Table.from_batches([batch]).cast(schema).to_batches():
                    writer.write_batch(plain)
                    sizes.append(plain.num_rows)
        self._map = pa.memory_map(str(path))
        self._file = pa.ipc.open_file(self._map)
        self._starts = np.cumsum([0, *sizes])

    def take(self, rows: NDArray[np.integer]) -> pa.Table:
        """Return `rows`, at least one, in their order."""
        of_batch = np.searchsorted(self._starts, rows, "right") - 1
        by_batch = np.argsort(of_batch, kind="stable")
        parts = []
        for b in np.unique(of_batch).tolist():
            wanted = rows[by_batch[of_batch[by_batch] == b]] - self._starts[b]
            parts.append(self._file.get_batch(b).take(pa.array(wanted.astype(np.int64))))
        back = np.empty(len(rows), np.int64)
        back[by_batch] = np.arange(len(rows))
        return pa.Table.from_batches(parts).combine_chunks().take(pa.array(back))

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()


def _plain(field: pa.Field) -> pa.Field:
    """A column of the values that a dictionary stands for: batches of a file share one dictionary, ours need not."""
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
