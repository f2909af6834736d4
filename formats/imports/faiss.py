"""Import of a faiss file with an IndexHNSWFlat, an IndexNSGFlat or inverted lists, perhaps in an IndexIDMap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.imports.faiss_file import ID_MAPS, FaissFile, IndexHeader
from indexmill.formats.imports.faiss_hnsw import HnswLists
from indexmill.formats.imports.faiss_ivf import IVF_KINDS, TRANSFORMED, read_lists
from indexmill.formats.imports.faiss_nsg import NsgLists
from indexmill.formats.imports.index import ImportedIndex, ImportedVectors
from indexmill.formats.imports.lists import ImportedLists
from indexmill.formats.imports.mapped import damaged, not_such_a_file

_HNSW, _NSG = "IHNf", "INSf"


def open_faiss(path: str | Path) -> ImportedIndex | ImportedLists:
    """Open a file written by `faiss.write_index`.

    Raises
    ------
    InputError
        If there is no such file.
    FormatError
        If it is damaged, or contains another kind of index.
    """
    file = FaissFile(path)
    kind = file.name("kind of index")
    outer: IndexHeader | None = None
    if kind in ID_MAPS:
        outer = file.header()
        kind = file.name("kind of the index within")
    if kind == TRANSFORMED or kind in IVF_KINDS:
        lists = read_lists(file, kind)
        if outer is not None:
            lists = _named(lists, np.array(file.ids(outer, lists.shared.n_vectors)))
        file.check_end()
        return lists
    if kind not in (_HNSW, _NSG):
        expected = (
            f"IndexHNSWFlat ({_HNSW}), IndexNSGFlat ({_NSG}) or inverted lists ({', '.join(IVF_KINDS)})"
        )
        raise not_such_a_file(
            path, f"byte {file.at - 4}: kind of index", expected, repr(kind), "only these are read"
        )
    header = file.header()
    graph: HnswLists | NsgLists
    graph = HnswLists(file, header.n) if kind == _HNSW else NsgLists(file, header.n)
    rows = file.flat_vectors(header)
    ids = None if outer is None else pa.array(np.array(file.ids(outer, header.n)))
    file.check_end()
    return ImportedIndex(
        kind="faiss-hnsw" if kind == _HNSW else "faiss-nsg",
        files=(Path(path),),
        metric=header.metric,
        vectors=ImportedVectors(
            str(path), header.n, header.dim, np.dtype(np.float32),
            lambda first, last: np.array(rows[first:last]), ids, "none" if ids is None else "int64",
        ),
        lists=graph,
        entry=graph.entry,
        no_codes="a flat index has none",
    )  # fmt: skip


def _named(lists: ImportedLists, ids: NDArray[np.int64]) -> ImportedLists:
    """Return `lists` with ids replaced by the entries of `ids` at these places."""

    def names(number: int) -> NDArray[np.int64]:
        places = lists.names(number)
        if len(places) and not 0 <= places.min() <= places.max() < len(ids):
            got = f"{places.min():,} to {places.max():,}"
            raise damaged(lists.files[0], f"ids of list {number}", f"0 to {len(ids) - 1:,}", got)
        return ids[places]

    return replace(lists, names=names)
