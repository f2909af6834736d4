"""Inverted lists without their deleted vectors, of one index or of several with equal centroids: rows keep their bytes.

Batches follow each other as they are, together while they are as small as the job asked for; no vector is assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace as replaced
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.index.vectors import VECTORS_NAME, writing_vectors
from indexmill.formats.ivf.batch import batch_name, longest_first, write_batch
from indexmill.formats.ivf.centroids import CENTROIDS_NAME, write_centroids
from indexmill.formats.ivf.lists import ListReader
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.generations.kept import kept_rows, kept_user_ids, write_kept_metadata
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES

#: Number of a vector that does not stay.
_GONE = np.uint32(2**32 - 1)
#: Bytes of vectors and rows that are read and written at a time.
_STREAM_BYTES = 32 << 20


class _Run(NamedTuple):
    """Consecutive batches of one index, by its place among the indexes, that become one batch or a part of it."""

    origin: int
    first: int
    last: int


class RewrittenLists:
    """The lists of `indexes`, one index after the other.

    Parameters
    ----------
    indexes : sequence of OpenedLists
        With equal centroids and codec.
    left : sequence of int64 array
        Vector ids of each index that stay, ascending.
    most : int
        Vectors that a batch may have, where it is made of several.

    Attributes
    ----------
    n : int
        Vectors of the result.
    sizes : list of int
        Vectors of each of its batches.
    """

    def __init__(self, indexes: Sequence[OpenedLists], left: Sequence[NDArray[np.int64]], most: int) -> None:
        self._indexes, self._left = indexes, left
        self.n = sum(map(len, left))
        self._groups, self.sizes = _grouped(indexes, left, most)

    def write(self, directory: Path, advance: Callable[[int], None]) -> list[NDArray[np.int64]]:
        """Write all files but the manifest to `directory`; `advance` counts rows.

        Returns
        -------
        list of int64 array, shape (n_lists,)
            Rows of each list in each batch.
        """
        base, numbers = self._indexes[0], self._numbers()
        written, first = [], 0
        for at, (group, size) in enumerate(zip(self._groups, self.sizes, strict=True)):
            written.append(
                self._write_batch(directory / batch_name(at), at, first, size, group, numbers, advance)
            )
            first += size
        shared = replaced(base.files.centroids, n_vectors=self.n, n_batches=len(self._groups))
        write_centroids(directory / CENTROIDS_NAME, shared)
        users = kept_user_ids(self._indexes, self._left)
        write_ids(directory / "ids.imx", np.arange(self.n, dtype=np.uint32), users)
        write_kept_metadata(directory / METADATA_NAME, self._indexes, self._left)
        if base.vectors is not None:
            form, norm = base.vectors.row_format, base.vectors.max_norm
            with writing_vectors(directory / VECTORS_NAME, form, self.n, shared.metric, norm) as file:
                for index, left in zip(self._indexes, self._left, strict=True):
                    for rows in [] if index.vectors is None else kept_rows(index.vectors, left):
                        file.write(rows)
        return written

    def _numbers(self) -> list[NDArray[np.uint32]]:
        """Return the new vector id of each vector of each index."""
        found, first = [], 0
        for index, left in zip(self._indexes, self._left, strict=True):
            numbers = np.full(index.n, _GONE, np.uint32)
            numbers[left] = np.arange(first, first + len(left), dtype=np.uint32)
            found.append(numbers)
            first += len(left)
        return found

    def _write_batch(
        self, path: Path, number: int, first: int, size: int, group: Sequence[_Run],
        numbers: Sequence[NDArray[np.uint32]], advance: Callable[[int], None],
    ) -> NDArray[np.int64]:  # fmt: skip
        shared = self._indexes[0].files.centroids
        with ExitStack() as stack:
            origins = [
                (
                    stack.enter_context(
                        ListReader(self._indexes[run.origin].files, range(run.first, run.last))
                    ),
                    numbers[run.origin],
                )
                for run in group
            ]
            sizes: NDArray[np.int64] = np.sum([_sizes(*origin) for origin in origins], axis=0)
            pieces = _pieces(origins, sizes, advance)
            write_batch(
                path, number, first, sizes, shared.row_bytes, pieces, size if shared.copies > 1 else None
            )
        return sizes


def _sizes(reader: ListReader, numbers: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return how many rows of each list stay."""
    if (numbers != _GONE).all():
        return reader.sizes
    sizes = np.zeros(len(reader.sizes), np.int64)
    for number, ids in reader.ids_in_file_order():
        sizes[number] += np.count_nonzero(numbers[ids] != _GONE)
    return sizes


def _pieces(
    origins: Sequence[tuple[ListReader, NDArray[np.uint32]]], sizes: NDArray[np.int64],
    advance: Callable[[int], None],
) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint8]]]:  # fmt: skip
    """Yield ids and rows that stay, list after list in file order."""
    for number in longest_first(sizes)[: np.count_nonzero(sizes)].tolist():
        for reader, numbers in origins:
            for ids, rows in zip(reader.ids(number), reader.rows(number), strict=True):
                renumbered = numbers[ids]
                stay = renumbered != _GONE
                yield renumbered[stay], rows[stay]
                advance(int(np.count_nonzero(stay)))


def _grouped(
    indexes: Sequence[OpenedLists], left: Sequence[NDArray[np.int64]], most: int
) -> tuple[list[list[_Run]], list[int]]:
    """Return the batches that become each new one, in order, and how many vectors it has."""
    groups, sizes = list[list[_Run]](), list[int]()
    for at, (index, stay) in enumerate(zip(indexes, left, strict=True)):
        ends = np.cumsum(index.files.batch_sizes())
        counts = np.diff(np.searchsorted(stay, ends), prepend=0)
        for batch, count in enumerate(counts.tolist()):
            if not count:
                continue
            if groups and sizes[-1] + count <= most:
                last = groups[-1][-1]
                if last.origin == at and last.last == batch:
                    groups[-1][-1] = _Run(at, last.first, batch + 1)
                else:
                    groups[-1].append(_Run(at, batch, batch + 1))
                sizes[-1] += count
            else:
                groups.append([_Run(at, batch, batch + 1)])
                sizes.append(count)
    return groups, sizes


def needed_bytes(indexes: Sequence[OpenedLists]) -> int:
    """Return the memory of rewriting the lists of `indexes`."""
    n, shared = sum(index.n for index in indexes), indexes[0].files.centroids
    need = FIXED_BYTES + _STREAM_BYTES + 24 * n + 3 * sum(index.ids_bytes for index in indexes)
    need += 3 * sum(index.files.centroids.centroids.nbytes for index in indexes)
    need += shared.n_lists * 32 * sum(len(index.files.batches) for index in indexes)
    return need + 4 * (0 if shared.rabitq is None else shared.rabitq.rotation.nbytes)
