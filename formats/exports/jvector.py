"""Export to JVector's on-disk graph, version 3, and product quantizer; big-endian (docs/formats/imports.md)."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.rows import ID_MAP_NAME, Advance
from indexmill.formats.exports.target import Target, cannot_hold, check_count, kept
from indexmill.formats.graph.nodes import NodeBlock

NAME = "jvector"
FILE_NAME, CODES_NAME = "index.jvector", "index.pqv"
_MAGIC, _PQ_MAGIC, _VERSION = 0xFFFF0D61, 0x75EC4012, 3
#: Feature flags of a file with vectors in its nodes.
_INLINE_VECTORS = 1
#: Weight for a quantizer that treats all directions equally.
_UNWEIGHTED = -1.0
#: Most vertices, whose ordinals are i32.
_MAX_VERTICES = 2**31 - 1
#: List size of the printed search.
_SEARCH_LIST = 64


def check(index: ExportedGraph) -> None:
    """Refuse more vectors than ordinals, and codes of rotated vectors."""
    check_count(NAME, index.n, _MAX_VERTICES)
    if index.codes.codebook.rotation is not None:
        action = "build an index with --pq-rotation none"
        raise cannot_hold(NAME, "codes of", "rotated vectors (OPQ)", "vectors as they are", action)


def write(index: ExportedGraph, folder: Path, advance: Advance) -> None:
    """Write both files. Memory: a block of nodes."""
    width = index.graph.node_format.max_degree
    with open(folder / FILE_NAME, "xb") as file:
        head = (_MAGIC, _VERSION, index.n, index.dim, index.entries.medoid, width, _INLINE_VECTORS)
        file.write(struct.pack(">7I", *head))
        for first, block in index.blocks():
            file.write(_nodes(index, first, block))
            advance(len(block))
    with open(folder / CODES_NAME, "xb") as file:
        _write_codes(index, file)


def _nodes(index: ExportedGraph, first: int, block: NodeBlock) -> memoryview:
    """Return a block's nodes: ordinal, vector, count, neighbours."""
    width = block.neighbours.shape[1]
    kind = np.dtype(
        [
            ("ordinal", ">i4"),
            ("vector", ">f4", (index.dim,)),
            ("degree", ">i4"),
            ("neighbours", ">i4", (width,)),
        ]
    )
    nodes = np.zeros(len(block), kind)
    nodes["ordinal"] = np.arange(first, first + len(block))
    nodes["vector"], nodes["degree"] = index.vectors(first, block), block.degrees
    inside = np.arange(width) < block.degrees[:, None]
    nodes["neighbours"] = np.where(inside, block.neighbours.astype(np.int64), -1)
    return nodes.view(np.uint8).data


def _write_codes(index: ExportedGraph, file: BinaryIO) -> None:
    """Write the quantizer and the codes, without the component added for inner product, which is 0 in queries."""
    book = index.codes.codebook
    ends = np.minimum(book.offsets.astype(np.int64), index.dim)
    sizes = np.diff(ends)
    sizes = sizes[sizes > 0]  # drops a chunk of the added component alone
    n_chunks = len(sizes)
    file.write(struct.pack(">IIII", _PQ_MAGIC, _VERSION, 0, n_chunks))  # 0: without a centre
    file.write(sizes.astype(">i4").data)
    file.write(struct.pack(">fI", _UNWEIGHTED, len(book.pivots)))
    for first, last in pairwise(ends[: n_chunks + 1]):
        file.write(np.ascontiguousarray(book.pivots[:, first:last], ">f4").data)
    file.write(struct.pack(">II", index.n, n_chunks))
    for codes in index.codes.blocks():
        file.write(np.ascontiguousarray(codes[:, :n_chunks]).data)


def snippet(index: ExportedGraph, folder: Path) -> str:
    """Return Java for jshell."""
    similarity = {"l2": "EUCLIDEAN", "ip": "DOT_PRODUCT", "cosine": "COSINE"}[index.metric]
    path = str(folder / FILE_NAME).replace("\\", "\\\\").replace('"', '\\"')
    return f"""\
// jshell --class-path of jvector 3.0.6 or 4.0.0-rc.8 and what it depends on
import io.github.jbellis.jvector.disk.*;
import io.github.jbellis.jvector.graph.*;
import io.github.jbellis.jvector.graph.disk.*;
import io.github.jbellis.jvector.util.Bits;
import io.github.jbellis.jvector.vector.*;
var index = OnDiskGraphIndex.load(new SimpleMappedReader.Supplier(java.nio.file.Path.of("{path}")));
var view = index.getView();
var query = VectorizationProvider.getInstance().getVectorTypeSupport().createFloatVector({index.dim});
query.set(0, 1f);
var found = GraphSearcher.search(query, {_SEARCH_LIST}, view, VectorSimilarityFunction.{similarity}, index, Bits.ALL);
// nodes are slots: {folder / ID_MAP_NAME} has the user id of each
for (var node : found.getNodes()) System.out.println(node.node + " " + node.score);
"""


TARGET = Target(
    name=NAME,
    holds=(ExportedGraph,),
    engine="JVector 3.0.6, 4.0.0-rc.8",
    keeps=kept(
        graph="yes", codes="yes", order="yes", entries="medoid", ids="beside it", metadata="beside it"
    ),
    rebuilds="nothing; vectors are float32",
    check=check,
    write=write,
    snippet=snippet,
)
