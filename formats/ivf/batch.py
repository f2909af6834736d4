"""batch-*.imx: the inverted lists of one batch, aligned to pages, longest first (docs/formats/ivf.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.pagefile.frame import PAGE_BYTES, corrupt
from indexmill.formats.pagefile.reader import KindFile, PageFile
from indexmill.formats.pagefile.writer import PageFileWriter, SectionWriter

KIND = "IVFB"
#: One entry of section ``directory``; pages count from the start of section ``lists``.
ENTRY = np.dtype([("list", "<u4"), ("size", "<u4"), ("first_page", "<u8")])
_NAME = re.compile(r"batch-(\d{6})\.imx")


def batch_name(number: int) -> str:
    """Return the name of a batch's file."""
    return f"batch-{number:06d}.imx"


def batch_number(name: str) -> int | None:
    """Return the number of the batch whose file has this name; None for other files."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def ids_offset(sizes: NDArray[Any], row_bytes: int) -> NDArray[np.int64]:
    """Return the offset of the ids in lists of these sizes, in bytes from the first row."""
    return -(-sizes.astype(np.int64) * row_bytes // 4) * 4


def list_pages(sizes: NDArray[Any], row_bytes: int) -> NDArray[np.int64]:
    """Return the number of pages of lists of these sizes."""
    return -(-(ids_offset(sizes, row_bytes) + 4 * sizes.astype(np.int64)) // PAGE_BYTES)


def longest_first(sizes: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the numbers of lists in file order: longest first, ties by number; `sizes` is by number."""
    return np.argsort(-sizes.astype(np.int64), kind="stable").astype(np.uint32)


def make_directory(sizes: NDArray[Any], row_bytes: int) -> NDArray[np.void]:
    """Return the directory of a batch, a structured array of `ENTRY`; `sizes` is by the number of the list."""
    order = longest_first(sizes)
    directory = np.zeros(len(order), ENTRY)
    directory["list"], directory["size"] = order, sizes[order]
    directory["first_page"][1:] = np.cumsum(list_pages(directory["size"], row_bytes))[:-1]
    return directory


def write_batch(
    path: str | Path,
    number: int,
    first_vector: int,
    sizes: NDArray[Any],
    row_bytes: int,
    pieces: Iterable[tuple[NDArray[np.uint32], NDArray[np.uint8]]],
    n_vectors: int | None = None,
) -> None:
    """Write the file of one batch, streamed. Memory: one piece, and the ids of one list.

    Parameters
    ----------
    number, first_vector : int
        Number of the batch, and the least vector id in it.
    sizes : integer array, shape (n_lists,)
        Rows of each list, by number.
    pieces : iterable of (ids, rows)
        uint32 (m,) and uint8 (m, row_bytes): list after list in file order, ids ascending within a list.
    n_vectors : int, optional
        Vectors of the batch, if some are in several lists; by default the number of rows.

    Raises
    ------
    ValueError
        If the pieces hold another number of vectors.
    """
    directory = make_directory(sizes, row_bytes)
    n = int(directory["size"].sum(dtype=np.int64))
    fields = {
        "batch": number,
        "first_vector": first_vector,
        "n_vectors": n if n_vectors is None else n_vectors,
        "n_lists": len(directory),
        "row_bytes": row_bytes,
    }
    if n_vectors is not None:
        fields["n_rows"] = n
    with PageFileWriter(path, KIND, fields) as file:
        with file.section("directory") as section:
            section.write(directory)
        with file.section("lists") as section:
            lists = _Lists(section, directory["size"].tolist(), row_bytes)
            for ids, rows in pieces:
                lists.add(ids, rows)
            lists.finish()


class _Lists:
    """Writer that divides pieces into lists, and writes the ids after the rows of each."""

    def __init__(self, section: SectionWriter, sizes: list[int], row_bytes: int) -> None:
        self._section, self._sizes, self._row_bytes = section, sizes, row_bytes
        self._at = self._missing = 0
        self._ids: list[NDArray[np.uint32]] = []
        self._missing = sizes[0]

    def add(self, ids: NDArray[np.uint32], rows: NDArray[np.uint8]) -> None:
        done = 0
        while done < len(ids):
            if not self._missing:
                raise ValueError(f"{len(ids) - done} vectors more than the sizes of the lists say")
            take = min(self._missing, len(ids) - done)
            self._section.write(np.ascontiguousarray(rows[done : done + take]))
            self._ids.append(ids[done : done + take].copy())
            self._missing -= take
            done += take
            if not self._missing:
                self._end()

    def _end(self) -> None:
        """Write the ids of a complete list, fill its last page, and begin the next list."""
        size = np.array(self._sizes[self._at])
        gap = int(ids_offset(size, self._row_bytes)) - int(size) * self._row_bytes
        self._section.write(bytes(gap))
        for ids in self._ids:
            self._section.write(np.ascontiguousarray(ids, "<u4"))
        self._ids.clear()
        self._section.write(bytes(-self._section.payload_bytes % PAGE_BYTES))
        self._at += 1
        self._missing = self._sizes[self._at] if self._at < len(self._sizes) else 0

    def finish(self) -> None:
        if self._missing:
            raise ValueError(f"{self._missing} vectors fewer than the sizes of the lists say")


class BatchFile(KindFile):
    """An opened batch file; header and directory are checked at once (`formats.ivf.lists` reads lists).

    Attributes
    ----------
    number, first_vector, n_vectors, n_rows, row_bytes : int
        There are more rows than vectors if some vectors are in several lists.
    directory : structured array of `ENTRY`, shape (n_lists,)
        In file order.

    Raises
    ------
    FormatError
        If the file is not an intact batch of this index.
    """

    kind = KIND

    def __init__(
        self,
        path: str | Path,
        number: int,
        n_lists: int,
        row_bytes: int,
        build_id: bytes | None = None,
        copies: int = 1,
    ) -> None:
        self.number, self._n_lists, self.row_bytes, self._copies = number, n_lists, row_bytes, copies
        super().__init__(path, build_id)

    def _read_fields(self, file: PageFile) -> None:
        file.field("batch", self.number, self.number)
        n = self.n_vectors = file.field("n_vectors", 1, 2**32 - 1)
        self.first_vector = file.field("first_vector", 0, 2**32 - 1 - n)
        self.n_rows = n if self._copies == 1 else file.field("n_rows", n, n * self._copies)
        file.field("n_lists", self._n_lists, self._n_lists)
        file.field("row_bytes", self.row_bytes, self.row_bytes)
        self.directory = np.frombuffer(file.section("directory", ENTRY.itemsize * self._n_lists), ENTRY)
        self._check_directory()
        file.payload_bytes("lists", self.lists_bytes)

    @property
    def lists_bytes(self) -> int:
        """Bytes of section ``lists``: whole pages."""
        return int(list_pages(self.directory["size"], self.row_bytes).sum()) * PAGE_BYTES

    @property
    def list_sizes(self) -> NDArray[np.int64]:
        """Rows of each list, by its number, shape (n_lists,)."""
        sizes = np.zeros(len(self.directory), np.int64)
        sizes[self.directory["list"]] = self.directory["size"]
        return sizes

    def _check_directory(self) -> None:
        d, n_lists = self.directory, len(self.directory)
        if not np.array_equal(np.sort(d["list"]), np.arange(n_lists)):
            raise corrupt(self.path, "section 'directory': lists", f"each of 0..{n_lists - 1} once", "others")
        total = int(d["size"].sum(dtype=np.uint64))
        if total != self.n_rows or int(d["size"].max()) > self.n_vectors:
            raise corrupt(self.path, "section 'directory': sizes", f"{self.n_rows} in all", total)
        sizes = np.zeros(n_lists, np.uint32)
        sizes[d["list"]] = d["size"]
        if not np.array_equal(d, make_directory(sizes, self.row_bytes)):
            raise corrupt(
                self.path,
                "section 'directory'",
                "longest lists first, each where its predecessor ends",
                "others",
            )

    def check_ids(self, ids: NDArray[np.uint32], starts: NDArray[np.int64]) -> None:
        """Check the ids of consecutive lists that start at `starts`.

        Raises
        ------
        CorruptFile
            If an id is not of this batch, or ids do not ascend within a list.
        """
        if not len(ids):
            return
        first, end = self.first_vector, self.first_vector + self.n_vectors
        if int(ids.min()) < first or int(ids.max()) >= end:
            raise corrupt(self.path, "ids", f"{first}..{end - 1}", f"{ids.min()}..{ids.max()}")
        falls = ids[1:] <= ids[:-1]
        falls[starts[(starts > 0) & (starts < len(ids))] - 1] = False
        if falls.any():
            raise corrupt(self.path, f"id at place {int(np.argmax(falls)) + 1}", "ascending ids", "others")
