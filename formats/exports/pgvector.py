"""Export to PostgreSQL with pgvector: a file for binary COPY, and the SQL that creates and loads the table."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.formats.exports import dump
from indexmill.formats.exports.columns import records
from indexmill.formats.exports.dump import dump_target
from indexmill.formats.exports.json_text import json_objects
from indexmill.formats.exports.rows import Advance, DumpBlock, ExportedRows
from indexmill.formats.exports.target import cannot_hold

NAME = "pgvector"
FILE_NAME, SQL_NAME = "vectors.pgcopy", "load.sql"
TABLE = "indexmill_vectors"
#: Most components of a column of type vector or halfvec.
_MAX_DIM = 16_000
#: Most components for pgvector's own indexes.
_MAX_INDEXED = {"vector": 2_000, "halfvec": 4_000}
_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # no flags, no extension
_TRAILER = b"\xff\xff"
#: First byte of a value of type jsonb.
_JSONB = b"\x01"
_OPERATORS = {"l2": ("<->", "l2_ops"), "ip": ("<#>", "ip_ops"), "cosine": ("<=>", "cosine_ops")}


def check(index: ExportedRows) -> None:
    """Refuse vectors that are too long or only codes, ids without a type, and metadata without JSON."""
    if index.dim > _MAX_DIM:
        action = "export to faiss or parquet"
        raise cannot_hold(NAME, "vectors of", f"{index.dim:,} components", f"up to {_MAX_DIM:,}", action)
    if index.user_ids is not None and index.user_ids.type == pa.uint64():
        index.check_ids(NAME, 63)
    if _id_type(index) == "text" and pc.any(pc.match_substring(index.user_ids, "\0")).as_py():
        raise cannot_hold(NAME, "ids with", "a zero byte", "strings without", "give --ids slot")
    dump.check_metadata(NAME, index)


def _id_type(index: ExportedRows) -> str:
    """Return the type of column ``id``."""
    if index.ids == "slot" or index.user_ids is None or pa.types.is_integer(index.user_ids.type):
        return "bigint"
    return "bytea" if "binary" in str(index.user_ids.type) else "text"


def _vector_type(index: ExportedRows) -> str:
    return "halfvec" if index.dtype == np.float16 else "vector"


def write(index: ExportedRows, folder: Path, advance: Advance) -> None:
    """Write both files. Memory: a block of rows, and the ids."""
    has_metadata = index.metadata(0, 1).num_columns > 0
    (folder / SQL_NAME).write_text(_sql(index, has_metadata))
    with open(folder / FILE_NAME, "xb") as file:
        file.write(_SIGNATURE)
        for block in index.rows():
            file.write(_rows(index, block, has_metadata))
            advance(len(block.vectors))
        file.write(_TRAILER)


def _rows(index: ExportedRows, block: DumpBlock, has_metadata: bool) -> pa.Buffer:
    """Return the tuples of a block: the number of fields, then length and bytes of each, big-endian."""
    first, last = block.first, block.last
    m = last - first
    half = _vector_type(index) == "halfvec"
    vector_bytes = index.dim * (2 if half else 4)
    fixed_id = _id_type(index) == "bigint"
    head = np.dtype(
        [("fields", ">i2"), ("slot_bytes", ">i4"), ("slot", ">i8"), ("part_bytes", ">i4"), ("part", ">i4")]
        + ([("id_bytes", ">i4"), ("id", ">i8")] if fixed_id else [])
    )
    heads = np.zeros(m, head)
    heads["fields"] = 4 + has_metadata
    heads["slot_bytes"], heads["slot"] = 8, np.arange(first, last)
    heads["part_bytes"], heads["part"] = 4, block.partitions
    if fixed_id:
        heads["id_bytes"] = 8
        heads["id"] = np.arange(first, last) if index.ids == "slot" else index.names(first, last).to_numpy()
    vectors = np.zeros(m, [("bytes", ">i4"), ("dim", ">i2"), ("unused", ">i2"),
                           ("values", ">f2" if half else ">f4", (index.dim,))])  # fmt: skip
    vectors["bytes"], vectors["dim"], vectors["values"] = 4 + vector_bytes, index.dim, block.vectors
    parts = [records(heads)]
    if not fixed_id:
        parts += _sized(index.names(first, last).cast(pa.large_binary()), b"")
    parts.append(records(vectors))
    if has_metadata:
        _check_text(index, first, last)
        objects = json_objects(dump.json_metadata(index, first, last), m)
        parts += _sized(objects.cast(pa.large_binary()), _JSONB)
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    return joined.buffers()[2]


def _check_text(index: ExportedRows, first: int, last: int) -> None:
    """Check that text has no zero byte, which values of type jsonb cannot have.

    Raises
    ------
    ConfigError
        If it has; the message names column and vector.
    """
    table = index.metadata(first, last)
    for field in table.schema:
        if "string" in str(field.type):
            text = table[field.name].cast(pa.large_string())
            found = pc.index(pc.match_substring(text, "\0"), True).as_py()
            if found >= 0:
                where = f"a zero byte, of vector {index.vector_ids[first + found]:,}"
                action = "take it out where the index is built, or export to parquet"
                raise cannot_hold(NAME, f"metadata column {field.name!r} with", where, "text without", action)


def _sized(values: pa.Array, prefix: bytes) -> list[pa.Array | pa.Scalar]:
    """Return the columns of a field of variable length: its length, including a prefix, the prefix, and its bytes."""
    lengths = pc.binary_length(values).to_numpy() + len(prefix)
    return [records(lengths.astype(">i4")), pa.scalar(prefix, pa.large_binary()), values]


def _sql(index: ExportedRows, has_metadata: bool) -> str:
    kind = _vector_type(index)
    operator, operators = _OPERATORS[index.metric]
    metadata = ",\n    metadata jsonb" if has_metadata else ""
    names = "slot, partition, id, embedding" + (", metadata" if has_metadata else "")
    if index.dim <= _MAX_INDEXED[kind]:
        advice = f"CREATE INDEX ON {TABLE} USING hnsw (embedding {kind}_{operators});"
    else:
        advice = f"-- pgvector indexes {kind} up to {_MAX_INDEXED[kind]:,} components; this has {index.dim:,}"
    return f"""\
-- psql -d DATABASE -f {SQL_NAME}, in the directory of this file.
-- slot is the place in the layout: rows are loaded in that order.
-- partition is the {index.PARTITION}
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE {TABLE} (
    slot bigint NOT NULL,
    partition integer NOT NULL,
    id {_id_type(index)} NOT NULL,
    embedding {kind}({index.dim}) NOT NULL{metadata}
);
\\copy {TABLE} ({names}) FROM '{FILE_NAME}' WITH (FORMAT binary)
ALTER TABLE {TABLE} ADD PRIMARY KEY (slot);
-- Exact search: SELECT id FROM {TABLE} ORDER BY embedding {operator} '[...]' LIMIT 10;
-- For approximate search pgvector builds a graph of its own:
-- {advice.removeprefix("-- ")}
"""


def snippet(index: ExportedRows, folder: Path) -> str:
    """Return the shell commands that load the dump and search it."""
    operator, _ = _OPERATORS[index.metric]
    zeros = f"(SELECT embedding FROM {TABLE} WHERE slot = 0)"
    return f"""\
cd {shlex.quote(str(folder))}
psql -v ON_ERROR_STOP=1 -f {SQL_NAME}
psql -c "SELECT id FROM {TABLE} ORDER BY embedding {operator} {zeros} LIMIT 10"
"""


TARGET = dump_target(
    NAME, "PostgreSQL with pgvector 0.5 or later (halfvec: 0.7)", "an index, on demand", check, write, snippet
)
