"""Export to a disk index of DiskANN, with the same vectors on a page (docs/formats/imports.md).

Nodes of codes (sq8, sq16) are exported only with the exact vectors that the index keeps apart, as float32 nodes. These
are larger, so fewer share a page.

Files: ``ann_disk.index``, ``ann_disk.index_medoids.bin`` and ``_centroids.bin`` (our entry vertices),
``_pq_pivots.bin`` and ``_pq_compressed.bin`` (our codes), ``_pq_pivots.bin_rotation_matrix.bin`` for codes of rotated
vectors, and ``_disk.index.tags`` (user ids, for PipeANN). There is no ``ann_metadata.bin``, because the meaning of its
numbers differs between programs.

For inner product, vectors are divided by a number in ``_disk.index_max_base_norm.bin``, as in DiskANN. That number is
the least power of two that is not less than the largest norm: all stored vectors have the same length, which is
sufficient, and no component loses a bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.rows import ID_MAP_NAME, Advance
from indexmill.formats.exports.target import Target, cannot_hold, kept
from indexmill.formats.graph.codes import MAX_CENTRES
from indexmill.formats.graph.nodes import MAX_DEGREE, NodeBlock, NodeFormat, group_dtype, pack_groups

NAME = "diskann"
PREFIX = "ann"
_SECTOR = 4096
_DTYPES = ("float32", "uint8", "int8")
_TAG_BITS = 32


def check(index: ExportedGraph) -> None:
    """Refuse node types that DiskANN does not have, and user ids that do not fit tags."""
    dtype = _node(index).dtype
    if dtype not in _DTYPES:
        action = (
            "export to faiss, which gets them as float32, or build the index again with --keep-vectors, or with "
            "--node-dtype same if its input is not float16"
        )
        raise cannot_hold(NAME, "nodes of type", dtype, ", ".join(_DTYPES), action)
    index.check_ids(NAME, _TAG_BITS)


def write(index: ExportedGraph, folder: Path, advance: Advance) -> None:
    """Write all files. Memory: a block of nodes, and the tags."""
    scale = _norm(index)
    disk = folder / f"{PREFIX}_disk.index"
    _write_nodes(index, disk, scale, advance)
    entries = index.entries
    write_bin(Path(f"{disk}_medoids.bin"), entries.vertices.astype("<u4")[:, None])
    write_bin(Path(f"{disk}_centroids.bin"), (entries.centroids / np.float32(scale)).astype("<f4"))
    if index.metric == "ip":
        write_bin(Path(f"{disk}_max_base_norm.bin"), np.array([[scale]], "<f4"))
    _write_pivots(index, folder / f"{PREFIX}_pq_pivots.bin", scale)
    if index.codes.codebook.rotation is not None:
        write_bin(
            folder / f"{PREFIX}_pq_pivots.bin_rotation_matrix.bin",
            index.codes.codebook.rotation.astype("<f4"),
        )
    _write_codes(index, folder / f"{PREFIX}_pq_compressed.bin")
    if index.ids == "user":
        write_bin(Path(f"{disk}.tags"), index.whole_ids(NAME, _TAG_BITS).astype("<u4")[:, None])


def _norm(index: ExportedGraph) -> float:
    """Return the divisor of stored vectors."""
    if index.metric != "ip":
        return 1.0
    fraction, exponent = np.frexp(index.graph.max_norm)
    return float(np.ldexp(1.0, exponent - (fraction == 0.5)))


def _node(index: ExportedGraph) -> NodeFormat:
    """Return the node that is exported: with exact vectors, if the index has them, and without codes of neighbours."""
    node = index.graph.node_format
    return NodeFormat(node.dim, node.dtype if index.exact is None else "float32", node.max_degree)


def node_width(node: NodeFormat) -> int:
    """Return W, the most neighbours of an exported node: R, or R + 1 if only that keeps our pages.

    DiskANN's vectors are not padded to a multiple of 4 bytes, so a node can be up to 3 bytes shorter than ours, and
    more nodes might fit a sector.
    """
    vector_bytes = node.dim * node.element_dtype.itemsize
    for width in (node.max_degree, min(node.max_degree + 1, MAX_DEGREE)):
        node_bytes = vector_bytes + 4 + 4 * width
        if (_SECTOR // node_bytes, -(-node_bytes // _SECTOR)) == (node.nodes_per_page, node.pages_per_node):
            return width
    return node.max_degree


def _write_nodes(index: ExportedGraph, path: Path, scale: float, advance: Advance) -> None:
    node = _node(index)
    width = node_width(node)
    vector_bytes = node.dim * node.element_dtype.itemsize
    node_bytes = vector_bytes + 4 + 4 * width
    per_sector = _SECTOR // node_bytes
    group, sectors = max(1, per_sector), -(-node_bytes // _SECTOR)
    groups = -(-index.n // group)
    kind = group_dtype(node.element_dtype, node.dim, vector_bytes, width)
    header = np.zeros(_SECTOR, np.uint8)
    header[:8].view("<u4")[:] = 9, 1
    size = (1 + groups * sectors) * _SECTOR
    medoid = index.entries.medoid
    header[8:80].view("<u8")[:] = index.n, node.dim, medoid, node_bytes, per_sector, 0, 0, 0, size
    with open(path, "xb") as file:
        file.write(header.data)
        waiting: list[NodeBlock] = []
        for first, block in index.blocks():
            last = first + len(block)
            exact = None if index.exact is None else index.exact.read(first, len(block)).astype(np.float32)
            vectors = block.vectors if exact is None else exact
            waiting.append(_prepared(NodeBlock(vectors, block.neighbours, block.degrees), first, scale))
            joined = NodeBlock.concatenate(waiting)
            whole = len(joined) if last == index.n else len(joined) // group * group
            file.write(pack_groups(kind, joined[:whole]).data)
            waiting = [joined[whole:]]
            advance(len(block))


def _prepared(block: NodeBlock, first: int, scale: float) -> NodeBlock:
    """Return nodes for DiskANN: scaled, and each with a neighbour, as its reader requires."""
    vectors = block.vectors if scale == 1 else (block.vectors / np.float32(scale)).astype(np.float32)
    alone = np.flatnonzero(block.degrees == 0)
    if not len(alone):
        return NodeBlock(vectors, block.neighbours, block.degrees)
    neighbours, degrees = block.neighbours.copy(), np.maximum(block.degrees, 1)
    neighbours[alone, 0] = first + alone  # the vertex itself, which a search has already seen
    return NodeBlock(vectors, neighbours, degrees)


def _write_pivots(index: ExportedGraph, path: Path, scale: float) -> None:
    """Write the quantizer: exactly 256 centres, relative to a centroid of zeros, with our chunks."""
    book = index.codes.codebook
    dim = book.pivots.shape[1]
    pivots = np.zeros((MAX_CENTRES, dim), "<f4")
    pivots[: len(book.pivots)] = book.pivots / np.float32(scale)
    parts = (pivots, np.zeros((dim, 1), "<f4"), book.offsets.astype("<u4")[:, None])
    ends = _SECTOR + np.cumsum([0, *(8 + part.nbytes for part in parts)])
    with open(path, "xb") as file:
        file.write(_bin(ends.astype("<u8")[:, None]).ljust(_SECTOR, b"\0"))
        for part in parts:
            file.write(_bin(part))


def _write_codes(index: ExportedGraph, path: Path) -> None:
    n_chunks = len(index.codes.codebook.offsets) - 1
    with open(path, "xb") as file:
        file.write(np.array([index.n, n_chunks], "<u4").data)
        for codes in index.codes.blocks():
            file.write(np.ascontiguousarray(codes).data)


def _bin(array: NDArray[Any]) -> bytes:
    """Return a binary block of DiskANN: rows, columns, payload."""
    return np.array(array.shape, "<u4").tobytes() + np.ascontiguousarray(array).tobytes()


def write_bin(path: Path, array: NDArray[Any]) -> None:
    """Write a file that consists of one binary block of DiskANN."""
    with open(path, "xb") as file:
        file.write(_bin(array))


def snippet(index: ExportedGraph, folder: Path) -> str:
    """Return Python that opens the export with diskannpy 0.7.0."""
    metric = {"l2": "l2", "ip": "mips", "cosine": "cosine"}[index.metric]
    dtype = _node(index).dtype
    names = f"ids = np.fromfile({str(folder / f'{PREFIX}_disk.index.tags')!r}, np.uint32)[2:]  # of each slot"
    answer = "print(ids[found.identifiers], found.distances)"
    if index.ids == "slot":
        names = f"# found.identifiers are slots: {folder / ID_MAP_NAME} has the user id of each"
        answer = "print(found.identifiers, found.distances)"
    return f"""\
import numpy as np
import diskannpy  # diskannpy==0.7.0, numpy==1.25.0, Python 3.11
index = diskannpy.StaticDiskIndex({str(folder)!r}, num_threads=2, num_nodes_to_cache=0, cache_mechanism=0,
    distance_metric={metric!r}, vector_dtype=np.{dtype}, dimensions={index.dim}, index_prefix={PREFIX!r})
{names}
query = np.ones({index.dim}, np.{dtype})
found = index.search(query, k_neighbors=10, complexity=50, beam_width=4)
{answer}
"""


TARGET = Target(
    name=NAME,
    holds=(ExportedGraph,),
    engine="DiskANN (diskannpy 0.7.0, diskannpy-rust 0.49.1), PipeANN",
    keeps=kept(
        graph="yes",
        codes="yes",
        order="yes",
        pages="except of sq8 and sq16 nodes",
        entries="yes",
        ids="32 bits, in .tags",
        metadata="beside it",
    ),
    check=check,
    write=write,
    snippet=snippet,
)
