"""faiss's inverted lists in another order: flat, with a scalar quantizer, PQ or RaBitQ; ids of vectors stay.

Centroids and lists are renumbered together, and lists stand in the file in the order of their numbers. Fields:
docs/formats/imports.md. What names no list is copied as it is. Lists of a file on their own (`ilod`) come into the new
file, which is complete by itself.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.imports.faiss_file import IndexHeader
from indexmill.formats.imports.faiss_ivf import TRANSFORMED
from indexmill.formats.imports.faiss_lists import InvertedLists
from indexmill.formats.imports.mapped import damaged
from indexmill.formats.reordered.engine_file import STEP_BYTES, Advance, EngineFile, parts, write_rows
from indexmill.formats.reordered.faiss_opened import OpenedFaiss
from indexmill.formats.reordered.faiss_passed import pass_codec, pass_no_map, pass_transforms
from indexmill.formats.reordered.kinds import LISTS, refused

#: Lists that progress is told of at a time.
_STEP = 256
#: Memory of a list: its size, its place and its room, and copies of them while they are checked.
_LIST_BYTES = 64


class FaissIvf(EngineFile):
    """Inverted lists of faiss under a flat quantizer, perhaps behind transforms, perhaps in an IndexIDMap.

    A list keeps its centroid, its rows in their order, and their ids; only its number changes. A search therefore
    probes the same lists, nearest first, and finds the same vectors, with two exceptions. Where a query is at exactly
    the same distance from two centroids, between which faiss decides by number, it may probe them in another order.
    For 20 queries and more at a time, the last bits of distances to centroids may depend on the centroids' numbers.
    Distances of PQ and RaBitQ, which are sums with these, then differ in their last bits, and equally near up to
    rounding counts as equally near.

    Parameters
    ----------
    opened : OpenedFaiss

    Raises
    ------
    InputError
        If there is no file of the lists beside it.
    FormatError
        If it is damaged, contains another kind of index, or names lists in a map from ids.
    """

    unit: ClassVar = "lists"
    ids = "as before"

    def __init__(self, opened: OpenedFaiss) -> None:
        file, kind = opened.file, opened.kind
        self._file, self.path = file, file.path
        transformed = kind == TRANSFORMED
        if transformed:
            pass_transforms(file)
            kind = file.name("kind of the index within")
        if kind not in LISTS:
            raise refused(file, kind, transformed)
        self.kind = LISTS[kind]
        header = file.header()
        self.n, self.n_vectors = file.number("<u8", "number of lists"), header.n
        file.number("<u8", "nprobe")
        coarse, action = IndexHeader(header.dim, self.n, header.metric), "only lists under these are laid out"
        self._centroids = file.flat_index(coarse, "coarse quantizer", action)[0]
        self._centroids_end = file.at
        self._check_centroids()
        pass_no_map(file)
        self._code_bytes = pass_codec(file, kind, header.dim)
        self._lists_begin = file.at
        self._lists = InvertedLists(file, self.n, self._code_bytes, header.n)
        self._lists_end = file.at
        opened.ids_at_end(header.n)
        head = len(self._head(np.arange(self.n, dtype=np.uint32)))
        rows = header.n * self._lists.row_bytes
        self.size = self._lists_begin + head + rows + file.at - self._lists_end
        self.files = (self.path, *self._lists.files)
        self.held_bytes = _LIST_BYTES * self.n

    @property
    def points(self) -> NDArray[Any]:
        """Centroids, float32 (n, dim), mapped; see `EngineFile`."""
        return self._centroids

    def write(self, order: NDArray[np.uint32], file: BinaryIO, advance: Advance) -> None:
        """See `EngineFile`."""
        original = self._file
        file.write(original.span(0, self._centroids_end - self._centroids.nbytes))
        write_rows(self._centroids.view(np.uint8), order, file, advance)
        file.write(original.span(self._centroids_end, self._lists_begin))
        file.write(self._head(order))
        with _reader(self._lists.path) as lists:
            for chosen in parts(order, _STEP):
                for number in chosen[self._lists.sizes[chosen] > 0].tolist():
                    for begin, length in self._lists.spans(number):
                        lists.copy(begin, length, file)
                advance(len(chosen))
        with _reader(self.path) as rest:
            rest.copy(self._lists_end, original.at - self._lists_end, file)

    def _check_centroids(self) -> None:
        """Check that an order can compare the centroids.

        Raises
        ------
        CorruptFile
            If a component is no finite number.
        """
        row_bytes = self._centroids.nbytes // self.n
        step = max(1, STEP_BYTES // row_bytes)
        for first in range(0, self.n, step):
            finite = np.isfinite(self._centroids[first : first + step]).all(axis=1)
            if not finite.all():
                number = first + int(np.argmin(finite))
                begin = self._centroids_end - (self.n - number) * row_bytes
                where = f"byte {begin:,}: centroid {number:,}"
                raise damaged(self.path, where, "finite numbers", "NaN or infinity")

    def _head(self, order: NDArray[np.uint32]) -> bytes:
        """Return what stands before the lists: all sizes, or, as faiss does it, those above 0, if they are few."""
        sizes = self._lists.sizes[order].astype("<u8")
        filled = np.flatnonzero(sizes)
        form = b"full"
        if len(filled) <= self.n // 2:
            form, sizes = b"sprs", np.column_stack([filled, sizes[filled]]).astype("<u8").ravel()
        head = struct.pack("<4sQQ4sQ", b"ilar", self.n, self._code_bytes, form, len(sizes))
        return head + sizes.tobytes()


class _Reader(NamedTuple):
    """A file that is read at places which follow no order.

    The system would read ahead beyond each list of a mapped file, on some disks by far more than the list is long.
    """

    path: Path
    handle: int

    def copy(self, begin: int, length: int, file: BinaryIO) -> None:
        """Write `length` bytes from offset `begin` on to `file`.

        Raises
        ------
        CorruptFile
            If the file became shorter meanwhile.
        """
        end = begin + length
        while begin < end:
            part = os.pread(self.handle, min(end - begin, STEP_BYTES), begin)
            if not part:
                expected = f"{end - begin:,} more bytes"
                raise damaged(self.path, f"byte {begin:,}", expected, "the end of the file")
            file.write(part)
            begin += len(part)


@contextmanager
def _reader(path: Path) -> Iterator[_Reader]:
    handle = os.open(path, os.O_RDONLY)
    try:
        if hasattr(os, "posix_fadvise"):  # not macOS
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
        yield _Reader(path, handle)
    finally:
        os.close(handle)
