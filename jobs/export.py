"""A graph index as Parquet, streamed in row groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.atomic import atomic_write
from indexmill.formats.graph import GraphFile
from indexmill.formats.ids import read_ids
from indexmill.formats.manifest import read_manifest
from indexmill.formats.metadata import METADATA_NAME, read_metadata
from indexmill.formats.nodes import NodeBlock
from indexmill.jobs.results import add_metadata


def export_parquet(index: Path, out: Path) -> int:
    """Write the index at `index` to `out`: one row a slot, one row group for each 16 MiB of nodes.

    Columns: ``id`` in the user's type, ``vector_id`` int64, ``vector`` fixed_size_list, ``neighbours`` list
    of ids, then the metadata columns. Vectors are what the index stores: of unit length under cosine, without
    the dimension that inner product adds, sq8 and sq16 decoded to float32. Memory is a row group, the ids and
    the metadata.

    Returns
    -------
    int
        Rows written.

    Raises
    ------
    FormatError
        If the index is damaged.
    """
    manifest = read_manifest(index)
    identity = manifest.page_file_build_id
    vector_ids, user_ids = read_ids(index / "ids.imx", identity)
    positions = pa.array(vector_ids.astype(np.int64))
    ids = positions if user_ids is None else _narrow(user_ids)
    metadata = pa.table({})
    for entry in manifest.files:
        if entry.name == METADATA_NAME:
            with open(index / entry.name, "rb") as parquet:
                metadata = read_metadata(parquet, index / entry.name, entry.sha256)
    first = 0
    with GraphFile(index / "graph.imx", identity) as graph, atomic_write(out) as file:
        writer = None
        try:
            for block in graph.blocks():
                slots = slice(first, first + len(block))
                columns: dict[str, Any] = {
                    "id": ids[slots],
                    "vector_id": positions[slots],
                    "vector": _vectors(graph, block),
                    "neighbours": _neighbours(block, ids),
                }
                if metadata.num_columns:
                    add_metadata(columns, metadata.take(positions[slots]))
                table = pa.table(columns)
                if writer is None:
                    writer = pq.ParquetWriter(file, table.schema, compression="zstd")
                writer.write_table(table, row_group_size=max(1, len(block)))
                first += len(block)
        finally:
            if writer is not None:
                writer.close()
    return first


def _narrow(user_ids: pa.Array) -> pa.Array | pa.ChunkedArray:
    """Ids in the type a user knows: the 64-bit offsets of the file are a detail."""
    narrow = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    wanted = narrow.get(user_ids.type)
    fits = wanted is not None and user_ids.nbytes < 2**31
    return user_ids.cast(wanted) if fits else user_ids


def _vectors(graph: GraphFile, block: NodeBlock) -> pa.Array:
    values: NDArray[Any] = block.vectors
    scale = graph.scale()
    if scale is not None:
        low, step = scale
        values = low + step * values.astype(np.float32)
    if graph.metric == "ip":
        values = values[:, :-1]
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).ravel()), values.shape[1])


def _neighbours(block: NodeBlock, ids: pa.Array) -> pa.Array:
    """Neighbour lists as lists of user ids."""
    inside = np.arange(block.neighbours.shape[1]) < block.degrees[:, None]
    offsets = np.concatenate([[0], np.cumsum(block.degrees, dtype=np.int64)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), ids.take(pa.array(block.neighbours[inside])))
