"""Another engine's graph file, recognised by its first bytes."""

from __future__ import annotations

from pathlib import Path

from indexmill.formats.imports.mapped import MappedFile
from indexmill.formats.reordered.faiss import FaissHnsw
from indexmill.formats.reordered.graph_file import GraphFile
from indexmill.formats.reordered.hnswlib import HnswlibFile

#: hnswlib begins with a number that is always 0, faiss with four characters.
_HNSWLIB_BEGINS = 0


def open_graph_file(path: str | Path) -> GraphFile:
    """Open an HNSW index of faiss or hnswlib, and check its structure.

    Memory: of hnswlib 8 bytes a vertex; the file is mapped.

    Raises
    ------
    InputError
        If there is no such file.
    FormatError
        If it is damaged, or another kind of file.
    """
    begins = MappedFile(path).number(0, "<u4", "first bytes")
    return HnswlibFile(path) if begins == _HNSWLIB_BEGINS else FaissHnsw(path)
