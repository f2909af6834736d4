"""``ids.parquet``: the vector id, user id and metadata of each slot, in slot order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.formats.exports.rows import ID_MAP_NAME, Advance, ExportedIndex
from indexmill.formats.index.metadata import add_metadata

#: Rows of a row group.
_ROWS = 1 << 16


def write_id_map(index: ExportedIndex, folder: Path, advance: Advance) -> None:
    """Write the table: slot uint32, vector_id int64, id in the user's type, then the metadata columns.

    A metadata column with the name of another column becomes ``metadata_NAME``. Memory: a row group.
    """
    writer = None
    try:
        for first in range(0, index.n, _ROWS):
            last = min(first + _ROWS, index.n)
            table = id_rows(index, first, last)
            if writer is None:
                writer = pq.ParquetWriter(folder / ID_MAP_NAME, table.schema, compression="zstd")
            writer.write_table(table, row_group_size=_ROWS)
            advance(last - first)
    finally:
        if writer is not None:
            writer.close()


def id_rows(index: ExportedIndex, first: int, last: int) -> pa.Table:
    """Return the rows of slots [first, last)."""
    columns: dict[str, Any] = {
        "slot": pa.array(np.arange(first, last, dtype=np.uint32)),
        "vector_id": pa.array(index.vector_ids[first:last].astype(np.int64)),
        "id": narrow(index.names(first, last)),
    }
    add_metadata(columns, index.metadata(first, last))
    return pa.table(columns)


def narrow(ids: pa.Array) -> pa.Array:
    """Return ids in the user's type, without the 64-bit offsets of ids.imx."""
    known = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return ids.cast(known[ids.type]) if ids.type in known else ids
