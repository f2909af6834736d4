"""The stream that the Lucene exporter reads (docs/formats/lucene.md): a head, documents, vectors, neighbour lists."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.formats.exports.columns import one_chunk, records
from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.rows import Advance
from indexmill.formats.graph.nodes import NodeBlock
from indexmill.formats.index.metadata import add_metadata

ColumnType = Literal["long", "double", "text", "bytes"]

_MAGIC, _VERSION = b"IMXL", 1
#: Numbers of field types, Lucene's encodings and similarities.
_COLUMN_TYPES: dict[ColumnType, int] = {"long": 0, "double": 1, "text": 2, "bytes": 3}
_BYTES, _FLOATS = 0, 1
_SIMILARITIES = {"l2": 0, "cosine": 2, "ip": 3}
#: Fields of every document besides metadata.
_OWN = ("slot", "vector", "id")
#: Documents encoded at a time.
_STEP = 1 << 13
#: Length of a missing value.
_MISSING = struct.pack("<i", -1)


def write_stream(index: ExportedGraph, file: IO[bytes], with_graph: bool, advance: Advance) -> None:
    """Write the stream. Memory: a block of nodes or of documents.

    Parameters
    ----------
    index : ExportedGraph
    file : binary file
    with_graph : bool
        Whether to write neighbour lists.
    advance : callable
        Called with numbers of finished vectors, in two passes, or three with lists.
    """
    file.write(_head(index, with_graph))
    for first in range(0, index.n, _STEP):
        last = min(first + _STEP, index.n)
        file.write(_documents(index, first, last))
        advance(last - first)
    for first, block in index.blocks():
        file.write(_vectors(index, first, block))
        advance(len(block))
    for _, block in index.blocks() if with_graph else ():
        file.write(_lists(block))
        advance(len(block))
    file.write(_MAGIC)


def holds_bytes(index: ExportedGraph) -> bool:
    """Return whether vectors are written as Lucene's signed bytes instead of float32."""
    return index.dtype in (np.uint8, np.int8)


def _head(index: ExportedGraph, with_graph: bool) -> bytes:
    encoding = _BYTES if holds_bytes(index) else _FLOATS
    numbers = (index.n, index.dim, encoding, _SIMILARITIES[index.metric], with_graph, index.entries.medoid,
               index.graph.node_format.max_degree)  # fmt: skip
    columns = _columns(index, 0, 1)
    head = _MAGIC + struct.pack("<i7ii", _VERSION, *numbers, len(columns))
    for name, values in columns.items():
        text = name.encode()
        head += struct.pack("<ii", _COLUMN_TYPES[column_type(values.type)], len(text)) + text
    return head


def column_type(values: pa.DataType) -> ColumnType:
    """Return the type of a field for values of an Arrow type."""
    if pa.types.is_dictionary(values):
        return column_type(values.value_type)
    if pa.types.is_integer(values) and values != pa.uint64():
        return "long"
    if pa.types.is_floating(values):
        return "double"
    return "bytes" if "binary" in str(values) else "text"


def _columns(index: ExportedGraph, first: int, last: int) -> dict[str, pa.ChunkedArray]:
    """Return the fields of slots [first, last) by name: id, then metadata, renamed if a name is taken."""
    columns: dict[str, Any] = dict.fromkeys(_OWN)
    add_metadata(columns, index.metadata(first, last))
    names = index.names(first, last)
    if index.ids == "slot":
        names = pa.array(np.arange(first, last))
    elif names.type == pa.uint64():
        names = names.cast(pa.int64())  # `check` has made sure that they fit
    columns["id"] = pa.chunked_array([names])
    return {name: values for name, values in columns.items() if values is not None}


def _documents(index: ExportedGraph, first: int, last: int) -> pa.Buffer:
    """Return documents: for each column the i32 bytes of a value, -1 for a missing one, and the value."""
    parts = [part for values in _columns(index, first, last).values() for part in _fields(_whole(values))]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    offsets = np.frombuffer(joined.buffers()[1], np.int64)
    return joined.buffers()[2].slice(0, int(offsets[len(joined)]))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = one_chunk(column)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _fields(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the encoded column, as one or two columns to be concatenated."""
    kind = column_type(values.type)
    if kind in ("long", "double"):
        number = pa.int64() if kind == "long" else pa.float64()
        rows = np.zeros(len(values), [("bytes", "<i4"), ("value", "<i8" if kind == "long" else "<f8")])
        rows["bytes"] = 8
        wide = values.cast(pa.float32()) if values.type == pa.float16() else values
        rows["value"] = wide.cast(number).fill_null(0).to_numpy(zero_copy_only=False)
        yield pc.if_else(values.is_valid(), records(rows), pa.scalar(_MISSING, pa.large_binary()))
        return
    if kind == "text":
        values = values.cast(pa.large_string())
    bytes_ = values.cast(pa.large_binary())
    yield records(pc.binary_length(bytes_).fill_null(-1).to_numpy(zero_copy_only=False).astype("<i4"))
    yield bytes_.fill_null(b"")


def _vectors(index: ExportedGraph, first: int, block: NodeBlock) -> memoryview:
    """Return vectors: float32, int8, or uint8 minus 128, which changes no distance between two of them."""
    values = index.vectors(first, block)
    if values.dtype == np.uint8:
        values = values ^ np.uint8(128)
    elif values.dtype != np.int8:
        values = values.astype("<f4")
    return np.ascontiguousarray(values).data


def _lists(block: NodeBlock) -> memoryview:
    """Return lists: i32 degree, i32 neighbours."""
    degrees = np.asarray(block.degrees).reshape(-1, 1)
    rows = np.concatenate([degrees.astype("<u4"), block.neighbours.astype("<u4")], axis=1)
    return np.ascontiguousarray(rows[np.arange(rows.shape[1]) <= degrees]).data
