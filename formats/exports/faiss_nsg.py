"""faiss's IndexNSGFlat with our graph."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from indexmill.formats.exports import faiss_file
from indexmill.formats.exports.target import ExportedIndex, Target, cannot_hold

NAME = "faiss-nsg"
_CLOSED = np.uint32(0xFFFFFFFF)  # -1


def check(index: ExportedIndex) -> None:
    """See `faiss_file.check`; a search from an entry vertex without neighbours goes nowhere."""
    faiss_file.check(NAME, index)
    if index.graph.read_nodes(index.entries.medoid, 1).degrees[0] == 0:
        action = "export to faiss, whose searches start at the vertex itself"
        raise cannot_hold(NAME, "an entry vertex with", "no neighbours", "those with one at least", action)


def write(index: ExportedIndex, folder: Path, advance: Callable[[int], None]) -> None:
    """Write the file: graph, then vectors. Memory: a block of nodes, and the ids."""
    with open(folder / faiss_file.FILE_NAME, "xb") as file:
        faiss_file.begin_ids(index, file)
        file.write(b"INSf" + faiss_file.header(index))
        _write_graph(index, file, advance)
        faiss_file.write_storage(index, file, advance)
        faiss_file.end_ids(NAME, index, file)


def _write_graph(index: ExportedIndex, file: BinaryIO, advance: Callable[[int], None]) -> None:
    n, width = index.n, index.graph.node_format.max_degree
    # How faiss would have built it: K, build type, NN-Descent's S, R, L and iterations. It never does.
    file.write(struct.pack("<ib4i", width, 0, 10, 100, width + 50, 10))
    # A search fills its list with vertices at random: more than there are would keep it busy for ever.
    search_list = min(faiss_file.SEARCH_LIST, n)
    file.write(struct.pack("<6iB", n, width, width + 32, width + 100, search_list, index.entries.medoid, 1))
    for _, block in index.blocks():
        inside = np.arange(width + 1) <= block.degrees[:, None]
        lists = np.full(inside.shape, _CLOSED)
        lists[:, :width] = np.where(inside[:, 1:], block.neighbours, _CLOSED)
        file.write(lists[inside].data)
        advance(len(block))


def snippet(index: ExportedIndex, folder: Path) -> str:
    """Return Python that opens the export."""
    return faiss_file.snippet(index, folder, f"graph.nsg.search_L = {min(faiss_file.SEARCH_LIST, index.n)}")


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
