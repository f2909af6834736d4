"""Export to faiss's IndexHNSWFlat, with our graph as its only level."""

from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np

from indexmill.formats.exports.faiss_graph import SEARCH_LIST, graph_target
from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.rows import Advance

NAME = "faiss"
#: Numbers written at a time.
_STEP = 1 << 18
#: Value of efConstruction, for vertices that faiss itself adds.
_ADD_LIST = 40


def _write_graph(index: ExportedGraph, file: BinaryIO, advance: Advance) -> None:
    n, width = index.n, index.graph.node_format.max_degree
    for kind, values in (("d", (1.0,)), ("i", (0, width))):  # every vertex is on level 0, with R places
        file.write(struct.pack(f"<Q{len(values)}{kind}", len(values), *values))
    file.write(struct.pack("<Q", n))
    for first in range(0, n, _STEP):
        file.write(np.ones(min(_STEP, n - first), "<i4").data)
    file.write(struct.pack("<Q", n + 1))
    for first in range(0, n + 1, _STEP):
        offsets = np.arange(first, min(first + _STEP, n + 1), dtype="<u8") * np.uint64(width)
        file.write(offsets.data)
    file.write(struct.pack("<Q", n * width))
    for _, block in index.blocks():
        inside = np.arange(width) < block.degrees[:, None]
        file.write(np.where(inside, block.neighbours, np.uint32(0xFFFFFFFF)).data)
        advance(len(block))
    # entry point, top level, efConstruction, efSearch, unused
    file.write(struct.pack("<5i", index.entries.medoid, 0, _ADD_LIST, SEARCH_LIST, 1))


TARGET = graph_target(
    NAME, "IndexHNSWFlat", b"IHNf", _write_graph, lambda index: f"graph.hnsw.efSearch = {SEARCH_LIST}"
)
