"""An index as one Parquet table, for any tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.formats.exports.idmap import narrow
from indexmill.formats.exports.target import ExportedIndex, Target
from indexmill.formats.metadata import add_metadata
from indexmill.formats.nodes import NodeBlock

NAME = "parquet"
FILE_NAME = "vectors.parquet"


def check(index: ExportedIndex) -> None:
    """Parquet holds every index."""


def write(index: ExportedIndex, folder: Path, advance: Callable[[int], None]) -> None:
    """Write a row a slot, a row group for each block of nodes. Memory: a row group, and the ids.

    Columns: slot uint32, partition uint32 (the page), vector_id int64, id in the user's type, vector
    fixed_size_list, neighbours list of slots (uint32), nearest first; then the metadata columns.
    """
    per_page = index.graph.node_format.nodes_per_group
    writer = None
    try:
        for first, block in index.blocks():
            slots = np.arange(first, first + len(block), dtype=np.uint32)
            columns: dict[str, Any] = {
                "slot": pa.array(slots),
                "partition": pa.array(slots // np.uint32(per_page)),
                "vector_id": pa.array(index.vector_ids[slots].astype(np.int64)),
                "id": narrow(index.names(first, first + len(block))),
                "vector": vector_column(index, block),
                "neighbours": _neighbours(block),
            }
            add_metadata(columns, index.metadata(first, first + len(block)))
            table = pa.table(columns)
            if writer is None:
                writer = pq.ParquetWriter(folder / FILE_NAME, table.schema, compression="zstd")
            writer.write_table(table, row_group_size=len(block))
            advance(len(block))
    finally:
        if writer is not None:
            writer.close()


def vector_column(index: ExportedIndex, block: NodeBlock) -> pa.Array:
    """Return a block's vectors as a fixed_size_list column."""
    values = np.ascontiguousarray(index.vectors(block))
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), index.dim)


def _neighbours(block: NodeBlock) -> pa.Array:
    inside = np.arange(block.neighbours.shape[1]) < block.degrees[:, None]
    offsets = np.concatenate([[0], np.cumsum(block.degrees, dtype=np.int64)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(block.neighbours[inside]))


def snippet(index: ExportedIndex, folder: Path) -> str:
    """Return Python that reads the first rows."""
    return f"""\
import pyarrow.parquet as pq
table = pq.ParquetFile({str(folder / FILE_NAME)!r})
print(table.schema_arrow)
print(table.read_row_group(0).slice(0, 3))
"""


TARGET = Target(
    name=NAME,
    kind="graph",
    engine="anything that reads Parquet",
    keeps={
        "graph": "as a column",
        "codes": "no",
        "clusters": "no",
        "order": "yes",
        "pages": "as a column",
        "entries": "no",
        "ids": "yes",
        "metadata": "yes",
    },
    rebuilds="its index, if any",
    passes=1,
    check=check,
    write=write,
    snippet=snippet,
)
