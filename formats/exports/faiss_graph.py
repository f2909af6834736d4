"""Common parts of faiss's two graphs: limits, the file around the graph, and the code that opens it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from indexmill.formats.exports import faiss_file
from indexmill.formats.exports.faiss_file import FILE_NAME, ID_BITS
from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.rows import ID_MAP_NAME, Advance
from indexmill.formats.exports.target import Target, check_count, kept

#: Most vertices, whose numbers are i32.
_MAX_VERTICES = 2**31 - 1
#: Default list size of a search.
SEARCH_LIST = 64


def check_limits(target: str, index: ExportedGraph) -> None:
    """Refuse more vectors than faiss's graphs support, and ids that are not i64."""
    check_count(target, index.n, _MAX_VERTICES)
    index.check_ids(target, ID_BITS)


def graph_target(
    name: str,
    index_class: str,
    kind: bytes,
    write_graph: Callable[[ExportedGraph, BinaryIO, Advance], None],
    list_size: Callable[[ExportedGraph], str],
    check: Callable[[ExportedGraph], None] = lambda index: None,
) -> Target[ExportedGraph]:
    """Return the target of one kind of graph.

    Parameters
    ----------
    index_class : str
        faiss's name of the kind of graph.
    kind : bytes
        Four characters at the start of an index of that kind.
    write_graph : callable
        ``write_graph(index, file, advance)`` writes the graph, between the header and the vectors.
    list_size : callable
        ``list_size(index)``: Python code that sets the list size of ``graph``.
    check : callable
        Refuses an index that this kind of graph does not support, besides `check_limits`.
    """

    def checked(index: ExportedGraph) -> None:
        check_limits(name, index)
        check(index)

    def write(index: ExportedGraph, folder: Path, advance: Advance) -> None:
        """Write the file: graph, then vectors. Memory: a block of nodes, and the ids."""
        with open(folder / FILE_NAME, "xb") as file:
            faiss_file.begin_ids(index, file)
            file.write(kind + faiss_file.header(index))
            write_graph(index, file, advance)
            vectors = (index.vectors(first, block) for first, block in index.blocks())
            faiss_file.write_flat(index, vectors, file, advance)
            faiss_file.end_ids(name, index, file)

    def snippet(index: ExportedGraph, folder: Path) -> str:
        return _snippet(index, folder, list_size(index))

    return Target(
        name=name,
        holds=(ExportedGraph,),
        engine=f"faiss (1.9 to 1.15), as {index_class}",
        keeps=kept(graph="yes", order="yes", entries="medoid", ids="63 bits", metadata="beside it"),
        rebuilds="nothing; vectors are float32 in memory",
        passes=2,
        check=checked,
        write=write,
        snippet=snippet,
    )


def _snippet(index: ExportedGraph, folder: Path, list_size: str) -> str:
    lines = [
        "import numpy as np",
        "import faiss  # faiss-cpu",
        f"index = faiss.read_index({str(folder / FILE_NAME)!r})",
        "graph = faiss.downcast_index(index.index)" if index.ids == "user" else "graph = index",
        list_size,
        f"query = np.ones((1, {index.dim}), np.float32)",
    ]
    if index.metric == "cosine":
        lines.append("faiss.normalize_L2(query)")
    lines.append("scores, ids = index.search(query, 10)")
    if index.ids == "slot":
        lines.append(f"# ids are slots: {folder / ID_MAP_NAME} has the user id of each")
    lines.append("print(ids, scores)")
    return "\n".join(lines) + "\n"
