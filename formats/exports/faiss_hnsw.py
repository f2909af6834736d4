"""faiss's IndexHNSWFlat with our graph as its only level."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from indexmill.formats.exports import faiss_file
from indexmill.formats.exports.target import ExportedIndex, Target

NAME = "faiss"
#: Numbers written at a time.
_STEP = 1 << 18
#: Candidates of a vertex that faiss itself would add.
_ADD_LIST = 40


def check(index: ExportedIndex) -> None:
    """See `faiss_file.check`."""
    faiss_file.check(NAME, index)


def write(index: ExportedIndex, folder: Path, advance: Callable[[int], None]) -> None:
    """Write the file: graph, then vectors. Memory: a block of nodes, and the ids."""
    with open(folder / faiss_file.FILE_NAME, "xb") as file:
        faiss_file.begin_ids(index, file)
        file.write(b"IHNf" + faiss_file.header(index))
        _write_graph(index, file, advance)
        faiss_file.write_storage(index, file, advance)
        faiss_file.end_ids(NAME, index, file)


def _write_graph(index: ExportedIndex, file: BinaryIO, advance: Callable[[int], None]) -> None:
    n, width = index.n, index.graph.node_format.max_degree
    for kind, values in (("d", (1.0,)), ("i", (0, width))):  # every vertex on level 0, R places there
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
    # entry point, top level, efConstruction, efSearch, one that is unused
    file.write(struct.pack("<5i", index.entries.medoid, 0, _ADD_LIST, faiss_file.SEARCH_LIST, 1))


def snippet(index: ExportedIndex, folder: Path) -> str:
    """Return Python that opens the export."""
    return faiss_file.snippet(index, folder, f"graph.hnsw.efSearch = {faiss_file.SEARCH_LIST}")


TARGET = Target(
    name=NAME,
    engine=faiss_file.ENGINE,
    keeps=faiss_file.KEEPS,
    rebuilds=faiss_file.REBUILDS,
    passes=2,
    check=check,
    write=write,
    snippet=snippet,
)
