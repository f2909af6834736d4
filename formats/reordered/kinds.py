"""Kinds of faiss's indexes that are laid out, and the refusal of all others."""

from __future__ import annotations

from indexmill.formats.errors import ForeignFile
from indexmill.formats.imports.faiss_file import FaissFile
from indexmill.formats.imports.faiss_ivf import FLAT, PQ, SCALAR, TRANSFORMED
from indexmill.formats.imports.mapped import not_such_a_file
from indexmill.formats.ivf.rabitq_in_faiss import MORE_BITS, ONE_BIT

HNSW_FLAT, HNSW_SCALAR = "IHNf", "IHNs"
#: Names of graphs, and of indexes of inverted lists.
GRAPHS = {HNSW_FLAT: "faiss IndexHNSWFlat", HNSW_SCALAR: "faiss IndexHNSWSQ"}
LISTS = {
    FLAT: "faiss IndexIVFFlat",
    SCALAR: "faiss IndexIVFScalarQuantizer",
    PQ: "faiss IndexIVFPQ",
    ONE_BIT: "faiss IndexIVFRaBitQ",
    MORE_BITS: "faiss IndexIVFRaBitQ",
}


def refused(file: FaissFile, kind: str, transformed: bool = False) -> ForeignFile:
    """Return the error for another kind of index, whose name was just read; `transformed`: behind a transform."""
    kinds = LISTS if transformed else {**GRAPHS, **LISTS, TRANSFORMED: "IndexPreTransform"}
    named = ", ".join(f"{name.removeprefix('faiss ')} ({code})" for code, name in kinds.items())
    expected = f"faiss {named}" + ("" if transformed else ", or an hnswlib index")
    action = "only these are laid out"
    if kind in GRAPHS:
        action = "a transform stands before the graph; lay out the index within"
    return not_such_a_file(file.path, f"byte {file.at - 4}: kind of index", expected, repr(kind), action)
