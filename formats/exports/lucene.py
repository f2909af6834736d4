"""Export to Lucene 9.12, documents in layout order, with our graph (``lucene``) or its own (``lucene-build``)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from indexmill.formats.exports.columns import byte_lengths
from indexmill.formats.exports.dump import check_metadata
from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.lucene_jar import check_tools, exporter, jar
from indexmill.formats.exports.lucene_stream import column_type, holds_bytes, write_stream
from indexmill.formats.exports.rows import Advance
from indexmill.formats.exports.target import Target, cannot_hold, check_count, kept

NAME, BUILD_NAME = "lucene", "lucene-build"
#: Directory of the index in the export.
FOLDER = "index"
#: Most documents of a Lucene index.
_MAX_DOCUMENTS = 2**31 - 129
_ID_BITS = 63
#: Most bytes of a term.
_MAX_TERM = 32_766
#: Java's heap: a constant, and bytes a vector with our graph (sizes of lists) or with one that Lucene builds.
_HEAP, _HEAP_VECTOR, _HEAP_BUILD = 96 << 20, 4, 600
#: Answers of the printed search, which are also Lucene's list size.
_SEARCH_LIST = 64


def check(name: str, index: ExportedGraph) -> None:
    """Refuse ids and metadata that documents cannot hold, and a missing Java or jar."""
    check_count(name, index.n, _MAX_DOCUMENTS)
    ids = index.user_ids
    if index.ids == "user" and ids is not None:
        if str(ids.type) == "uint64":
            index.check_ids(name, _ID_BITS)
        elif column_type(ids.type) != "long":
            _, longest = byte_lengths(ids)
            if longest > _MAX_TERM:
                action = "give --ids slot"
                raise cannot_hold(name, "ids of", f"{longest:,} bytes", f"up to {_MAX_TERM:,}", action)
    check_metadata(name, index)
    check_tools(name)


def write(with_graph: bool, index: ExportedGraph, folder: Path, advance: Advance) -> None:
    """Write the index in `folder`. Memory: a block of nodes, and Java's heap and virtual machine."""
    per_vector = _HEAP_VECTOR if with_graph else _HEAP_BUILD
    with exporter(folder / FOLDER, index.build_id[:8], _HEAP + per_vector * index.n) as stream:
        write_stream(index, stream, with_graph, advance)


def snippet(index: ExportedGraph, folder: Path) -> str:
    """Return Java for jshell."""
    path = str(folder / FOLDER).replace("\\", "\\\\").replace('"', '\\"')
    bytes_ = holds_bytes(index)
    is_binary = index.ids == "user" and column_type(index.names(0, 1).type) == "bytes"
    value = "getBinaryValue" if is_binary else "get"
    query, kind = ("byte", "KnnByteVectorQuery") if bytes_ else ("float", "KnnFloatVectorQuery")
    note = "  // components are uint8 - 128" if index.dtype == np.uint8 else ""
    return f"""\
// jshell --class-path {jar()}  (or lucene-core 9.12)
import org.apache.lucene.index.*;
import org.apache.lucene.search.*;
import org.apache.lucene.store.*;
var reader = DirectoryReader.open(FSDirectory.open(java.nio.file.Path.of("{path}")));
var query = new {query}[{index.dim}];{note}
query[0] = 1;
// Lucene keeps as many candidates as it is asked for: ask for more than you take
var found = new IndexSearcher(reader).search(new {kind}("vector", query, {_SEARCH_LIST}), 10);
var stored = reader.storedFields();
for (var hit : found.scoreDocs) System.out.println(stored.document(hit.doc).{value}("id") + " " + hit.score);
"""


def _target(name: str, with_graph: bool, **parts: str) -> Target[ExportedGraph]:
    return Target(
        name=name,
        engine="Lucene 9.12",
        holds=(ExportedGraph,),
        keeps=kept(order="yes", ids="63 bits or text", metadata="as fields", **parts),
        rebuilds="nothing, until segments are merged" if with_graph else "its graph, while it is written",
        passes=3 if with_graph else 2,
        check=partial(check, name),
        write=partial(write, with_graph),
        snippet=snippet,
    )


TARGET = _target(NAME, True, graph="yes", entries="medoid")
BUILD_TARGET = _target(BUILD_NAME, False)
