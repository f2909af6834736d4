"""Inverted lists without their deleted vectors, of one index or of several with equal centroids: rows keep their bytes.

Batches follow each other as they are, together while they are as small as the job asked for; no vector is assigned.
Each batch is a file of its own, which a run that was killed need not write again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace as replaced
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.index.vectors import VECTORS_NAME, writing_vectors
from indexmill.formats.ivf.batch import BatchFile, batch_name, longest_first, write_batch
from indexmill.formats.ivf.centroids import CENTROIDS_NAME, write_centroids
from indexmill.formats.ivf.lists import ListReader
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.generations.kept import kept_rows, kept_user_ids, write_kept_metadata
from indexmill.pipeline.generations.outputs import Output
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

    def outputs(self) -> list[Output]:
        """Return all files but the manifest; the steps of batches are vectors, those of other files none."""
        numbers, found, first = self._numbers(), list[Output](), 0
        for at, (group, size) in enumerate(zip(self._groups, self.sizes, strict=True)):
            write = partial(self._write_batch, at, first, size, group, numbers)
            found.append(Output(batch_name(at), size, write))
            first += size
        found.append(Output(CENTROIDS_NAME, 0, self._write_centroids))
        found.append(Output("ids.imx", 0, self._write_ids))
        if self._indexes[0].metadata is not None:
            found.append(Output(METADATA_NAME, 0, self._write_metadata))
        if self._indexes[0].vectors is not None:
            found.append(Output(VECTORS_NAME, 0, self._write_vectors))
        return found

    def list_sizes(self, directory: Path) -> list[NDArray[np.int64]]:
        """Return the rows of each list in each batch, int64 (n_lists,), of the files in `directory`."""
        shared, found = self._indexes[0].files.centroids, []
        for at in range(len(self.sizes)):
            path = directory / batch_name(at)
            with BatchFile(path, at, shared.n_lists, shared.row_bytes, copies=shared.copies) as batch:
                found.append(batch.list_sizes)
        return found

    def _write_centroids(self, path: Path, advance: Callable[[int], None]) -> None:
        shared = self._indexes[0].files.centroids
        write_centroids(path, replaced(shared, n_vectors=self.n, n_batches=len(self._groups)))

    def _write_ids(self, path: Path, advance: Callable[[int], None]) -> None:
        write_ids(path, np.arange(self.n, dtype=np.uint32), kept_user_ids(self._indexes, self._left))

    def _write_metadata(self, path: Path, advance: Callable[[int], None]) -> None:
        write_kept_metadata(path, self._indexes, self._left)

    def _write_vectors(self, path: Path, advance: Callable[[int], None]) -> None:
        base = self._indexes[0]
        assert base.vectors is not None
        form, norm, metric = base.vectors.row_format, base.vectors.max_norm, base.files.centroids.metric
        with writing_vectors(path, form, self.n, metric, norm) as file:
            for index, left in zip(self._indexes, self._left, strict=True):
                for rows in [] if index.vectors is None else kept_rows(index.vectors, left):
                    file.write(rows)

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
        self, number: int, first: int, size: int, group: Sequence[_Run], numbers: Sequence[NDArray[np.uint32]],
        path: Path, advance: Callable[[int], None],
    ) -> None:  # fmt: skip
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
    return need + 3 * shared.rotation_bytes + sum(index.files.centroids.rotation_bytes for index in indexes)
