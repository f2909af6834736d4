"""Export to faiss's IndexNSGFlat, with our graph."""

from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np

from indexmill.formats.exports.faiss_graph import SEARCH_LIST, graph_target
from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.rows import Advance
from indexmill.formats.exports.target import cannot_hold

NAME = "faiss-nsg"
_CLOSED = np.uint32(0xFFFFFFFF)  # -1


def check(index: ExportedGraph) -> None:
    """Refuse an entry vertex without neighbours, where a search would end."""
    if index.graph.read_nodes(index.entries.medoid, 1).degrees[0] == 0:
        action = "export to faiss, whose searches start at the vertex itself"
        raise cannot_hold(NAME, "an entry vertex with", "no neighbours", "those with one at least", action)


def _write_graph(index: ExportedGraph, file: BinaryIO, advance: Advance) -> None:
    n, width = index.n, index.graph.node_format.max_degree
    # Parameters of a build by faiss, which are unused: K, build type, NN-Descent's S, R, L and iterations.
    file.write(struct.pack("<ib4i", width, 0, 10, 100, width + 50, 10))
    # A search fills its list with random vertices: with a longer list than there are vertices, it would never end.
    search_list = min(SEARCH_LIST, n)
    file.write(struct.pack("<6iB", n, width, width + 32, width + 100, search_list, index.entries.medoid, 1))
    for _, block in index.blocks():
        inside = np.arange(width + 1) <= block.degrees[:, None]
        lists = np.full(inside.shape, _CLOSED)
        lists[:, :width] = np.where(inside[:, 1:], block.neighbours, _CLOSED)
        file.write(lists[inside].data)
        advance(len(block))


def _list_size(index: ExportedGraph) -> str:
    return f"graph.nsg.search_L = {min(SEARCH_LIST, index.n)}"


TARGET = graph_target(NAME, "IndexNSGFlat", b"INSf", _write_graph, _list_size, check)
