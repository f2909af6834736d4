"""Another engine's file, recognised by its first bytes."""

from __future__ import annotations

from pathlib import Path

from indexmill.formats.imports.mapped import MappedFile
from indexmill.formats.reordered.faiss_hnsw import FaissHnsw
from indexmill.formats.reordered.faiss_ivf import FaissIvf
from indexmill.formats.reordered.faiss_opened import open_faiss
from indexmill.formats.reordered.graph_file import GraphFile
from indexmill.formats.reordered.hnswlib import HnswlibFile
from indexmill.formats.reordered.kinds import GRAPHS

#: hnswlib begins with a number that is always 0, faiss with four characters.
_HNSWLIB_BEGINS = 0


def open_engine_file(path: str | Path) -> GraphFile | FaissIvf:
    """Open an HNSW index of faiss or hnswlib, or inverted lists of faiss, and check its structure.

    Memory: of hnswlib 8 bytes a vertex, of inverted lists 64 bytes a list; the file is mapped.

    Raises
    ------
    InputError
        If there is no such file, or no file of the lists beside it.
    FormatError
        If it is damaged, or another kind of file.
    """
    begins = MappedFile(path).number(0, "<u4", "first bytes")
    if begins == _HNSWLIB_BEGINS:
        return HnswlibFile(path)
    opened = open_faiss(path)
    return FaissHnsw(opened) if opened.kind in GRAPHS else FaissIvf(opened)
