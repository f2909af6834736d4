"""faiss's IndexHNSWFlat and IndexHNSWSQ with their vertices in another order, in an IndexIDMap that keeps their ids.

Fields: docs/formats/imports.md. What names no vertex is copied as it is.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.imports.faiss_file import FaissFile, IndexHeader
from indexmill.formats.imports.faiss_hnsw import HnswLists
from indexmill.formats.imports.mapped import damaged, not_such_a_file
from indexmill.formats.reordered.engine_file import Advance, parts, write_rows
from indexmill.formats.reordered.faiss_opened import OpenedFaiss
from indexmill.formats.reordered.faiss_passed import pass_scalar_quantizer
from indexmill.formats.reordered.graph_file import GraphFile, places_of
from indexmill.formats.reordered.kinds import GRAPHS, HNSW_FLAT

_SCALAR_STORAGE = "IxSQ"
#: The map of a file that has none: IndexIDMap2 would also map ids to places, in memory.
_NEW_MAP = b"IxMp"
_NOBODY = np.int32(-1)
#: Neighbours that are renumbered at a time.
_STEP_LINKS = 1 << 20
#: Ids, levels and offsets written at a time.
_STEP = 1 << 18


class _Storage(NamedTuple):
    """Vectors of an index.

    Attributes
    ----------
    rows : uint8 array, shape (n, row_bytes), mapped
    begin : int
        Offset of the first one.
    points : float32 or uint8 array, shape (n, dim), mapped, or None
        As an order compares them.
    """

    rows: NDArray[np.uint8]
    begin: int
    points: NDArray[Any] | None


class FaissHnsw(GraphFile):
    """An HNSW graph of faiss with flat vectors, or with those of a scalar quantizer.

    Parameters
    ----------
    opened : OpenedFaiss
        Of a kind that is a key of `GRAPHS`.

    Raises
    ------
    FormatError
        If it is damaged, or stores its vectors in another way.
    """

    ids = "as before, by an IndexIDMap in the file"

    def __init__(self, opened: OpenedFaiss) -> None:
        file = opened.file
        self.path, self.files = file.path, (file.path,)
        self._file = file
        self._is_mapped = opened.outer is not None
        self.kind = GRAPHS[opened.kind]
        self._begin = file.at - 4  # of the index within the map
        header = file.header()
        self._header_end = file.at
        self.n = self.n_vectors = header.n
        self.lists: HnswLists = HnswLists(file, header.n)
        self._check_entry()
        self._storage_begin = file.at
        storage = _flat(file, header) if opened.kind == HNSW_FLAT else _scalar(file, header)
        self._rows, self._stored_begin, self._points = storage
        self._ids = opened.ids_at_end(header.n)
        self.row_bytes = self._rows.shape[1]
        added = 0 if self._is_mapped else len(_NEW_MAP) + self._header_end - self._begin - 4
        self.rows_begin = self._stored_begin + added
        self.size = file.at + added + (0 if self._is_mapped else 8 + 8 * self.n)

    @property
    def points(self) -> NDArray[Any] | None:
        """Flat vectors, float32, or codes of one byte a component, uint8; see `EngineFile`."""
        return self._points

    def write(self, order: NDArray[np.uint32], file: BinaryIO, advance: Advance) -> None:
        """See `EngineFile`."""
        original = self._file
        if self._is_mapped:
            file.write(original.span(0, self._begin))
        else:
            file.write(_NEW_MAP + original.span(self._begin + 4, self._header_end))
        file.write(original.span(self._begin, self.lists.begin))
        self._write_graph(order, file, advance)
        file.write(original.span(self._storage_begin, self._stored_begin))
        write_rows(self._rows, order, file, advance)
        file.write(struct.pack("<Q", self.n))
        for chosen in parts(order, _STEP):
            file.write((chosen if self._ids is None else self._ids[chosen]).astype("<i8").data)

    def _check_entry(self) -> None:
        entry, top = self.lists.tail[:2].tolist()
        if not 0 <= top < self.lists.levels[entry]:
            got = f"vertex {entry:,}, which has {self.lists.levels[entry]:,} levels"
            raise damaged(self.path, "entry vertex", f"one of level {top:,}, the top", got)

    def _write_graph(self, order: NDArray[np.uint32], file: BinaryIO, advance: Advance) -> None:
        """Write levels, offsets, neighbours and tail."""
        lists, n, places = self.lists, self.n, places_of(order).view(np.int32)  # faiss numbers vertices so
        levels = lists.levels[order]
        ends = np.zeros(n + 1, "<i8")
        np.cumsum(lists.places.astype(np.int64)[levels], out=ends[1:])
        for values in (levels, ends):
            file.write(struct.pack("<Q", len(values)))
            file.write(values.data)
        file.write(struct.pack("<Q", ends[-1]))
        step = max(1, _STEP_LINKS // lists.width)
        for first in range(0, n, step):
            chosen = order[first : first + step]
            links = self._links(chosen, ends[first : first + len(chosen) + 1])
            file.write(np.where(links < 0, _NOBODY, places[links]).astype("<i4", copy=False).data)
            advance(len(chosen))
        file.write(struct.pack("<i", places[lists.tail[0]]))
        file.write(lists.tail[1:].tobytes())

    def _links(self, vertices: NDArray[np.uint32], ends: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the lists of `vertices` on all levels one after the other, checked.

        Parameters
        ----------
        ends : int64 array, shape (m + 1,)
            Where the lists of each vertex begin, and where those of the last end.
        """
        lists = self.lists
        sizes = np.diff(ends)
        within = np.arange(ends[-1] - ends[0]) - np.repeat(ends[:-1] - ends[0], sizes)
        at = np.repeat(lists.offsets[vertices].astype(np.int64), sizes) + within
        links: NDArray[np.int32] = lists.neighbours[at]
        wrong = (links < -1) | (links >= self.n)
        if not wrong.any():
            higher = np.flatnonzero((within >= lists.width) & (links >= 0))
            level = np.searchsorted(lists.places, within[higher], side="right") - 1
            wrong[higher] = lists.levels[links[higher]] <= level
        if wrong.any():
            first = int(np.argmax(wrong))
            vertex = int(np.repeat(vertices, sizes)[first])
            where = f"vertex {vertex:,}, place {within[first]:,} of its lists"
            raise damaged(self.path, where, "a vertex of the list's level, or -1", f"{links[first]:,}")
        return links


def _flat(file: FaissFile, owner: IndexHeader) -> _Storage:
    vectors = file.flat_vectors(owner)
    return _Storage(vectors.view(np.uint8), file.at - vectors.nbytes, vectors)


def _scalar(file: FaissFile, owner: IndexHeader) -> _Storage:
    """Read an IndexScalarQuantizer.

    Raises
    ------
    FormatError
        If it is none, or has other vectors than its owner.
    """
    begin = file.at
    kind = file.name("storage of the vectors")
    if kind != _SCALAR_STORAGE:
        raise not_such_a_file(
            file.path, f"byte {begin}: storage of the vectors", f"an IndexScalarQuantizer ({_SCALAR_STORAGE})",
            repr(kind), "only these are laid out",
        )  # fmt: skip
    header = file.header()
    dim, row_bytes = pass_scalar_quantizer(file)
    codes = file.vector(np.uint8, "codes")
    if (header.n, header.dim, dim) != (owner.n, owner.dim, owner.dim):
        got = f"{header.n:,} x {header.dim:,}, and a quantizer of {dim:,}"
        raise damaged(file.path, f"byte {begin}: storage", f"{owner.n:,} x {owner.dim:,} as its owner", got)
    if not row_bytes or len(codes) != owner.n * row_bytes:
        expected = f"{owner.n:,} x {row_bytes:,} = {owner.n * row_bytes:,}"
        raise damaged(file.path, f"byte {begin}: bytes of codes", expected, f"{len(codes):,}")
    rows = codes.reshape(owner.n, row_bytes)
    return _Storage(rows, file.at - codes.nbytes, rows if row_bytes == dim else None)
