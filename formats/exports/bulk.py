"""Export to OpenSearch and Elasticsearch: files for their bulk interface, and the mappings of an index."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from indexmill.formats.exports import dump
from indexmill.formats.exports.columns import byte_lengths
from indexmill.formats.exports.dump import dump_target
from indexmill.formats.exports.json_text import join, json_column, json_lists, json_objects
from indexmill.formats.exports.rows import Advance, DumpBlock, ExportedRows
from indexmill.formats.exports.target import cannot_hold
from indexmill.formats.index.metadata import free_name

NAME = "bulk"
#: Bytes of a file; a server accepts 100 MB at once by default.
FILE_BYTES = 32 << 20
#: Approximate bytes of text encoded at a time.
STEP_BYTES = 4 << 20
#: Most bytes of an _id.
_MAX_ID = 512
#: Fields of every document; the last one only if user ids can be JSON.
_OWN = ("slot", "partition", "vector_id", "vector", "id")
#: Most components of a dense_vector and of a knn_vector.
_MAX_DIM = {"elasticsearch": 4_096, "opensearch": 16_000}


def check(index: ExportedRows) -> None:
    """Refuse ids that are not JSON strings, vectors that are too long or only codes, and metadata without JSON."""
    if index.dim > _MAX_DIM["opensearch"]:
        most = " (opensearch) and ".join(f"{_MAX_DIM[name]:,}" for name in ("opensearch", "elasticsearch"))
        holds = f"up to {most} (elasticsearch)"
        raise cannot_hold(NAME, "vectors of", f"{index.dim:,} components", holds, "export to parquet")
    ids = index.user_ids
    if index.ids == "user" and ids is not None:
        if "binary" in str(ids.type):
            raise cannot_hold(NAME, "ids of type", "binary", "numbers and strings", "give --ids slot")
        if "string" in str(ids.type):
            shortest, longest = byte_lengths(ids)
            if longest > _MAX_ID or shortest < 1:
                got = f"{shortest} to {longest:,} bytes"
                raise cannot_hold(NAME, "ids of", got, f"1 to {_MAX_ID} bytes", "give --ids slot")
    dump.check_metadata(NAME, index)
    _check_names([*_own(index), *_metadata_fields(index)])


def _check_names(names: list[str]) -> None:
    """Refuse names that both engines refuse: a dot in a name makes an object."""
    for name in names:
        if not name.strip() or not all(part.strip() for part in name.split(".")):
            action = "rename the column where the index is built"
            raise cannot_hold(
                NAME, "a metadata column named", repr(name), "names without empty parts", action
            )
        if inner := next((other for other in names if other.startswith(name + ".")), None):
            action = "rename a metadata column where the index is built"
            got = f"{name!r} and {inner!r}"
            raise cannot_hold(NAME, "columns", got, "a name as a value or as an object", action)


def _metadata_fields(index: ExportedRows) -> dict[str, pa.Field]:
    """Return the metadata columns by field name; names that begin with _ are reserved, and get a prefix."""
    fields: dict[str, pa.Field] = {}
    for field in index.metadata(0, 1).schema:
        name = f"metadata_{field.name}" if field.name.startswith("_") else field.name
        fields[free_name(name, (*_own(index), *fields))] = field
    return fields


def _own(index: ExportedRows) -> tuple[str, ...]:
    """Return the names of the fields that are not metadata."""
    return _OWN if _id_field(index) is not None else _OWN[:-1]


def write(index: ExportedRows, folder: Path, advance: Advance) -> None:
    """Write the files, and the mapping of each engine. Memory: a block of rows as text, and the ids."""
    for engine in _MAX_DIM:
        if index.dim <= _MAX_DIM[engine]:
            (folder / f"{engine}.json").write_text(json.dumps(_settings(index, engine), indent=2) + "\n")
    with ExitStack() as stack:
        number, written, file = 0, 0, stack.enter_context(open(folder / _name(0), "xb"))
        for rows, text in _lines(index):
            if written and written + len(text) > FILE_BYTES:
                stack.close()
                number, written = number + 1, 0
                file = stack.enter_context(open(folder / _name(number), "xb"))
            file.write(text)
            written += len(text)
            advance(rows)


def _name(number: int) -> str:
    return f"bulk-{number:05}.ndjson"


def _lines(index: ExportedRows) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield the number of consecutive slots and their text, a few MiB at a time."""
    step = max(1, STEP_BYTES // (64 + 12 * index.dim))
    for block in index.rows():
        for part in block.cut(step):
            yield len(part.vectors), _text(index, part)


def _text(index: ExportedRows, block: DumpBlock) -> pa.Buffer:
    """Return two lines for each slot: the action, and the document."""
    first, last = block.first, block.last
    slots = pa.array(np.arange(first, last))
    names = index.names(first, last)
    columns: list[tuple[str, Any]] = [
        ("slot", json_column(slots)),
        ("partition", json_column(pa.array(block.partitions))),
        ("vector_id", json_column(pa.array(index.vector_ids[first:last].astype(np.int64)))),
    ]
    if _id_field(index) is not None:
        columns.append(("id", json_column(names)))
    vectors = np.ascontiguousarray(block.vectors).ravel()
    columns.append(("vector", json_lists(pa.array(vectors), index.dim)))
    texts = (text for _, text in dump.json_metadata(index, first, last))
    columns += zip(_metadata_fields(index), texts, strict=True)
    called = _strings(slots if index.ids == "slot" else names)
    lines = join(['{"index":{"_id":', called, "}}\n", json_objects(columns, last - first), "\n"])
    return lines.buffers()[2]


def _id_field(index: ExportedRows) -> str | None:
    """Return the type of field ``id``; None if user ids cannot be JSON."""
    kind = pa.int64() if index.user_ids is None else index.user_ids.type
    if pa.types.is_integer(kind):
        return "long" if kind == pa.int64() else "unsigned_long"
    return None if "binary" in str(kind) else "keyword"


def _strings(ids: pa.Array) -> pa.Array:
    """Return ids as JSON strings, the form of the engines."""
    return json_column(ids.cast(pa.large_string()))


def _settings(index: ExportedRows, engine: str) -> dict[str, Any]:
    """Return the body of a request that creates an index for the documents."""
    properties: dict[str, Any] = {"slot": {"type": "long"}, "partition": {"type": "integer"},
                                  "vector_id": {"type": "long"}}  # fmt: skip
    id_type = _id_field(index)
    if id_type is not None:
        properties["id"] = {"type": id_type}
    properties |= {name: _property(field.type) for name, field in _metadata_fields(index).items()}
    if engine == "elasticsearch":
        similarity = {"l2": "l2_norm", "ip": "max_inner_product", "cosine": "cosine"}[index.metric]
        properties["vector"] = {"type": "dense_vector", "dims": index.dim, "similarity": similarity}
        return {"mappings": {"properties": properties}}
    space = {"l2": "l2", "ip": "innerproduct", "cosine": "cosinesimil"}[index.metric]
    properties["vector"] = {"type": "knn_vector", "dimension": index.dim, "space_type": space}
    return {"settings": {"index": {"knn": True}}, "mappings": {"properties": properties}}


def _property(kind: pa.DataType) -> dict[str, Any]:
    """Return the mapping of a metadata column: an engine's guess would take 3.0 as an integer, and text as a date."""
    if pa.types.is_dictionary(kind):
        return _property(kind.value_type)
    if pa.types.is_integer(kind):
        return {"type": "unsigned_long" if kind == pa.uint64() else "long"}
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return {"type": "double"}
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    return {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}


def snippet(index: ExportedRows, folder: Path) -> str:
    """Return the shell commands that create an index and load the documents."""
    engine = "opensearch" if index.dim > _MAX_DIM["elasticsearch"] else "elasticsearch"
    return f"""\
cd {shlex.quote(str(folder))}  # {engine}.json is for this engine, beside it are those for others
curl -fsS -X PUT localhost:9200/vectors -H 'Content-Type: application/json' --data-binary @{engine}.json
for part in bulk-*.ndjson; do
  curl -fsS -X POST localhost:9200/vectors/_bulk -H 'Content-Type: application/x-ndjson' \\
    --data-binary "@$part" | grep -q '"errors":false' || {{ echo "$part: documents were refused"; break; }}
done
"""


TARGET = dump_target(NAME, "OpenSearch, Elasticsearch", "its index, from the vectors", check, write, snippet)
