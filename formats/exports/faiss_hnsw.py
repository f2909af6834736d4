"""Export to faiss's IndexHNSWFlat, with our graph as its only level."""

from __future__ import annotations

from typing import BinaryIO

from indexmill.formats.exports.faiss_graph import SEARCH_LIST, graph_target
from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.hnsw import HnswShape, write_hnsw
from indexmill.formats.exports.rows import Advance

NAME = "faiss"
#: Value of efConstruction, for vertices that faiss itself adds.
_ADD_LIST = 40


def _write_graph(index: ExportedGraph, file: BinaryIO, advance: Advance) -> None:
    shape = HnswShape(
        n=index.n, places=index.graph.node_format.max_degree, upper_places=0, entry=index.entries.medoid,
        add_list=_ADD_LIST, search_list=SEARCH_LIST,
    )  # fmt: skip
    write_hnsw(shape, ((block.neighbours, block.degrees) for _, block in index.blocks()), (), file, advance)


TARGET = graph_target(
    NAME, "IndexHNSWFlat", b"IHNf", _write_graph, lambda index: f"graph.hnsw.efSearch = {SEARCH_LIST}"
)
