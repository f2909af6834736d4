"""Export to usearch's index, with our graph as its only level (docs/formats/imports.md)."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.rows import ID_MAP_NAME, Advance
from indexmill.formats.exports.target import Target, kept
from indexmill.formats.graph.nodes import NodeBlock

NAME = "usearch"
FILE_NAME = "index.usearch"
#: Version of usearch in the files.
_VERSION = (2, 26, 6)
_METRICS = {"l2": b"e", "ip": b"i", "cosine": b"c"}
#: usearch's numbers of float32, u64 keys and u32 slots.
_KINDS = bytes([11, 14, 15])
_HEAD_BYTES = 64
_STEP = 1 << 18
_KEY_BITS = 63
#: List size of the printed search.
_SEARCH_LIST = 64


def check(index: ExportedGraph) -> None:
    """Refuse ids that are not keys."""
    index.check_ids(NAME, _KEY_BITS)


def write(index: ExportedGraph, folder: Path, advance: Advance) -> None:
    """Write the file: vectors as float32, then the graph. Memory: a block of nodes, and the ids."""
    n, width = index.n, index.graph.node_format.max_degree
    keys = index.whole_ids(NAME, _KEY_BITS)
    with open(folder / FILE_NAME, "xb") as file:
        file.write(struct.pack("<II", n, 4 * index.dim))
        for first, block in index.blocks():
            file.write(np.ascontiguousarray(index.vectors(first, block), "<f4").data)
            advance(len(block))
        head = b"usearch" + struct.pack("<3H", *_VERSION) + _METRICS[index.metric] + _KINDS
        head += struct.pack("<3QB", n, 0, index.dim, 0)  # present, deleted, dimensions, one vector a key
        file.write(head.ljust(_HEAD_BYTES, b"\0"))
        # size, places of a list on upper levels and on level 0, greatest level, entry slot
        file.write(struct.pack("<5Q", n, max(2, width // 2), width, 0, index.entries.medoid))
        for first in range(0, n, _STEP):
            file.write(np.zeros(min(_STEP, n - first), "<i2").data)
        for first, block in index.blocks():
            file.write(_nodes(block, keys[first : first + len(block)]))
            advance(len(block))


def _nodes(block: NodeBlock, keys: NDArray[np.int64]) -> memoryview:
    """Return a block's nodes: key, level 0, count, neighbours."""
    width = block.neighbours.shape[1]
    kind = np.dtype([("key", "<u8"), ("level", "<i2"), ("degree", "<u4"), ("neighbours", "<u4", (width,))])
    nodes = np.zeros(len(block), kind)
    nodes["key"], nodes["degree"], nodes["neighbours"] = keys, block.degrees, block.neighbours
    return nodes.view(np.uint8).data


def snippet(index: ExportedGraph, folder: Path) -> str:
    """Return Python that opens the export."""
    note = (
        f"# keys are slots: {folder / ID_MAP_NAME} has the user id of each\n" if index.ids == "slot" else ""
    )
    return f"""\
import numpy as np
from usearch.index import Index  # usearch 2.26
index = Index.restore({str(folder / FILE_NAME)!r})  # view=True: mapped instead of read
index.expansion_search = {_SEARCH_LIST}
found = index.search(np.ones({index.dim}, np.float32), 10)
{note}print(found.keys, found.distances)
"""


TARGET = Target(
    name=NAME,
    holds=(ExportedGraph,),
    engine="usearch 2.26",
    keeps=kept(graph="yes", order="yes", entries="medoid", ids="63 bits", metadata="beside it"),
    rebuilds="nothing; vectors are float32",
    passes=2,
    check=check,
    write=write,
    snippet=snippet,
)
