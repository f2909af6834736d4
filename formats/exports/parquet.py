"""Export to one Parquet table, for any tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.exports.dump import dump_target
from indexmill.formats.exports.idmap import narrow
from indexmill.formats.exports.rows import Advance, ExportedRows
from indexmill.formats.graph.nodes import NodeBlock
from indexmill.formats.index.metadata import add_metadata

NAME = "parquet"
FILE_NAME = "vectors.parquet"
#: Columns of single values, all columns except metadata, and Parquet's name of the elements of vectors.
_SINGLE = ("slot", "partition", "vector_id", "id")
_OWN = (*_SINGLE, "vector", "neighbours")
_ELEMENTS = "vector.list.element"


def write(index: ExportedRows, folder: Path, advance: Advance) -> None:
    """Write a row for each slot, and a row group for each block. Memory: a row group, and the ids.

    Columns: slot (uint32), partition (uint32, the page or the list), vector_id (int64), id (in the user's type), vector
    (fixed_size_list), for graphs neighbours (list of uint32 slots, nearest first), and the metadata columns.
    """
    writer = None
    try:
        for block in index.rows():
            first, last = block.first, block.last
            slots = np.arange(first, last, dtype=np.uint32)
            columns: dict[str, Any] = {
                "slot": pa.array(slots),
                "partition": pa.array(block.partitions.astype(np.uint32)),
                "vector_id": pa.array(index.vector_ids[slots].astype(np.int64)),
                "id": narrow(index.names(first, last)),
                "vector": _vector_column(block.vectors),
            }
            if block.nodes is not None:
                columns["neighbours"] = _neighbours(block.nodes)
            add_metadata(columns, index.metadata(first, last))
            table = pa.table(columns)
            if writer is None:
                writer = pq.ParquetWriter(
                    folder / FILE_NAME, table.schema, compression="zstd", **_encodings(table.schema)
                )
            writer.write_table(table, row_group_size=len(slots))
            advance(len(slots))
    finally:
        if writer is not None:
            writer.close()


def _encodings(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the columns with dictionaries, whose values repeat, and with statistics, which have single values.

    For other columns both would be computed and kept for every row group without use.
    """
    metadata = [name for name in schema.names if name not in _OWN]
    codes = [_ELEMENTS] if pa.types.is_integer(schema.field("vector").type.value_type) else []
    return {"use_dictionary": codes + metadata, "write_statistics": [*_SINGLE, *metadata]}


def _vector_column(vectors: NDArray[Any]) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(vectors).ravel()), vectors.shape[1]
    )


def _neighbours(block: NodeBlock) -> pa.Array:
    inside = np.arange(block.neighbours.shape[1]) < block.degrees[:, None]
    offsets = np.concatenate([[0], np.cumsum(block.degrees, dtype=np.int64)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(block.neighbours[inside]))


def snippet(index: ExportedRows, folder: Path) -> str:
    """Return Python that reads the first rows."""
    return f"""\
import pyarrow.parquet as pq
table = pq.ParquetFile({str(folder / FILE_NAME)!r})
print(table.schema_arrow)
print(table.read_row_group(0).slice(0, 3))
"""


TARGET = dump_target(
    NAME, "anything that reads Parquet", "its index, if any", lambda index: None, write, snippet,
    graph="as a column", order="yes", ids="yes", metadata="yes",
)  # fmt: skip
