"""Inverted lists read across all batches of an IVF index, in pieces of bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.ivf.batch import BatchFile, ids_offset
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.pagefile.closing import Closing
from indexmill.formats.pagefile.frame import PAGE_BYTES

#: Bytes read at a time.
_PIECE_BYTES = 1 << 20


class ListReader(Closing):
    """Reader of the lists of batches of an index; all data read is checked.

    Memory: 20 bytes for each list of each batch, and a piece. Every batch file stays open.

    Parameters
    ----------
    index : IvfFiles
    batches : sequence of int, optional
        Numbers of the batches to read, ascending; by default all.

    Attributes
    ----------
    sizes : int64 array, shape (n_lists,)
        Number of rows of each list, over these batches.

    Raises
    ------
    FormatError
        If a batch is missing, damaged or of another build.
    """

    def __init__(self, index: IvfFiles, batches: Sequence[int] | None = None) -> None:
        self._row_bytes = index.centroids.row_bytes
        n_lists = index.centroids.n_lists
        self.sizes = np.zeros(n_lists, np.int64)
        self._batches: list[tuple[BatchFile, NDArray[np.uint32]]] = []
        with ExitStack() as stack:
            for number in range(len(index.batches)) if batches is None else batches:
                batch = stack.enter_context(index.open_batch(number))
                places = np.empty(n_lists, np.uint32)
                places[batch.directory["list"]] = np.arange(n_lists, dtype=np.uint32)
                self.sizes[batch.directory["list"]] += batch.directory["size"]
                self._batches.append((batch, places))
            self._stack = stack.pop_all()

    @property
    def piece_rows(self) -> int:
        """Most rows read at a time."""
        return max(1, _PIECE_BYTES // self._row_bytes)

    def rows(self, number: int) -> Iterator[NDArray[np.uint8]]:
        """Yield the rows of list `number`, uint8 (m, row_bytes), in the order of their ids; m as in `ids`.

        Raises
        ------
        CorruptFile
            If a page's CRC differs.
        """
        for part in self._parts(number):
            yield from self._rows(*part)

    def ids(self, number: int) -> Iterator[NDArray[np.uint32]]:
        """Yield the vector ids of list `number`, uint32 (m,), ascending.

        Raises
        ------
        CorruptFile
            If a page's CRC differs, or ids do not ascend within their batch.
        """
        for part in self._parts(number):
            yield from self._ids(*part)

    def middle_rows(self, number: int, share: float) -> NDArray[np.uint8]:
        """Return a share of the rows of list `number`, rounded up in each batch, from the middle: uint8 (m, row_bytes).

        Raises
        ------
        CorruptFile
            If a page's CRC differs.
        """
        found = [np.empty((0, self._row_bytes), np.uint8)]
        for batch, first_page, size in self._parts(number):
            count = min(math.ceil(size * share), size)
            first = (size - count) // 2
            data = _span(batch, first_page, first * self._row_bytes, count * self._row_bytes)
            found.append(np.frombuffer(data, np.uint8).reshape(count, self._row_bytes))
        return np.concatenate(found)

    def rows_of(self, wanted: NDArray[np.uint32]) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint8]]]:
        """Yield vector ids and rows of all that lists hold of the vectors `wanted`, ascending, in file order.

        All ids are read, and of the rows little more than those yielded; pieces are no larger than those of `rows`, and
        errors are those of `ids`.
        """
        if not len(wanted):
            return
        for _, (batch, first_page, size) in self._parts_in_file_order():
            before = 0
            for ids in self._ids(batch, first_page, size):
                at = np.searchsorted(wanted, ids)
                places = np.flatnonzero(wanted[np.minimum(at, len(wanted) - 1)] == ids)
                apart = np.diff(places) * self._row_bytes > PAGE_BYTES
                for near in np.split(places, np.flatnonzero(apart) + 1) if len(places) else []:
                    count = int(near[-1] - near[0]) + 1
                    data = _span(
                        batch, first_page, (before + int(near[0])) * self._row_bytes, count * self._row_bytes
                    )
                    rows = np.frombuffer(data, np.uint8).reshape(count, self._row_bytes)
                    yield ids[near], rows[near - near[0]]
                before += len(ids)

    def rows_in_file_order(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield list number and rows of all lists in file order: batch after batch, longest list first.

        Pieces are those of `ids_in_file_order`; raises errors as `rows`.
        """
        for number, part in self._parts_in_file_order():
            for rows in self._rows(*part):
                yield number, rows

    def ids_in_file_order(self) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        """Yield list number and ids of all lists in file order: batch after batch, longest list first.

        Raises errors as `ids`.
        """
        for number, part in self._parts_in_file_order():
            for ids in self._ids(*part):
                yield number, ids

    def _rows(self, batch: BatchFile, first_page: int, size: int) -> Iterator[NDArray[np.uint8]]:
        step = self.piece_rows
        for first in range(0, size, step):
            count = min(step, size - first)
            data = _span(batch, first_page, first * self._row_bytes, count * self._row_bytes)
            yield np.frombuffer(data, np.uint8).reshape(count, self._row_bytes)

    def _ids(self, batch: BatchFile, first_page: int, size: int) -> Iterator[NDArray[np.uint32]]:
        step = self.piece_rows
        begin = int(ids_offset(np.array(size), self._row_bytes))
        for first in range(0, size, step):
            # the id before the piece is read again, to compare it with the first one
            before = min(first, 1)
            count = min(step, size - first)
            data = _span(batch, first_page, begin + 4 * (first - before), 4 * (count + before))
            ids = np.frombuffer(data, "<u4")
            batch.check_ids(ids, np.array([0]))
            yield ids[before:]

    def _parts_in_file_order(self) -> Iterator[tuple[int, tuple[BatchFile, int, int]]]:
        """Yield list number, and (batch, first page, size), of each list that is not empty."""
        for batch, _ in self._batches:
            for entry in batch.directory[batch.directory["size"] > 0]:
                yield int(entry["list"]), (batch, int(entry["first_page"]), int(entry["size"]))

    def _parts(self, number: int) -> Iterator[tuple[BatchFile, int, int]]:
        """Yield (batch, first page, size) of the list in each batch where it is not empty."""
        for batch, places in self._batches:
            entry = batch.directory[places[number]]
            if entry["size"]:
                yield batch, int(entry["first_page"]), int(entry["size"])


def _span(batch: BatchFile, first_page: int, offset: int, count: int) -> memoryview:
    """Return `count` bytes from `offset` on of a list that starts at `first_page`."""
    page = offset // PAGE_BYTES
    pages = -(-(offset + count) // PAGE_BYTES) - page
    data = batch.file.read_pages("lists", first_page + page, pages)
    skip = offset - page * PAGE_BYTES
    return memoryview(data)[skip : skip + count]
