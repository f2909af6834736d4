"""The batches of extended inverted lists: most are taken over as they are, the last ones are written anew.

New vectors make batches of their own. A list begins on a page in each batch, so many small batches would cost a
search many pages: batches before the new ones are written anew with them while they are not much larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.closure import NO_CELL, cell_sizes
from indexmill.formats.ivf.batch import batch_name, list_pages, longest_first, write_batch
from indexmill.formats.ivf.centroids import Centroids
from indexmill.formats.ivf.lists import ListReader
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.kinds.ivf.tasks import Fitted, encoded_rows

#: A batch is written anew with what follows it if it has at most this many times the pages of that.
_MOST_PAGES = 4
#: Rows coded at a time.
_BLOCK = 8192


class Plan(NamedTuple):
    """Which batches an extended index has.

    Attributes
    ----------
    kept : int
        Batches that are taken over, the first ones.
    bounds : list of int
        First vector of each batch that is written, and the number of all vectors.
    """

    kept: int
    bounds: list[int]


class NewRows(NamedTuple):
    """Rows of the new vectors, sorted by vector; a vector in several lists has several.

    Attributes
    ----------
    vectors : int64 array, shape (n_rows,)
        Places of the vectors among the new ones.
    cells : uint32 array, shape (n_rows,)
        Lists.
    rows : uint8 array, shape (n_rows, row_bytes)
        May be mapped.
    """

    vectors: NDArray[np.int64]
    cells: NDArray[np.uint32]
    rows: NDArray[np.uint8]


@dataclass(frozen=True)
class Batches:
    """The batches that an append finds, by the sizes of their lists.

    Attributes
    ----------
    vectors : sequence of int
        Of each batch.
    rows : callable
        Returns how many rows each list of a batch has, shape (n_lists,), given the number of the batch.
    most : int
        Vectors that a batch may have.
    """

    vectors: Sequence[int]
    rows: Callable[[int], NDArray[np.int64]]
    most: int

    @staticmethod
    def of(index: OpenedLists) -> Batches:
        """Return those of an index."""

        def rows(number: int) -> NDArray[np.int64]:
            with ListReader(index.files, [number]) as reader:
                return reader.sizes

        return Batches(index.files.batch_sizes(), rows, index.most_vectors)

    def kept(self, added: int, rows: NDArray[np.int64], row_bytes: int) -> int:
        """Return how many batches stay, the first ones, where `added` vectors have so many `rows` in each list."""
        kept, gathered = len(self.vectors), added
        while kept:
            of_batch = self.rows(kept - 1)
            pages, allowed = (int(list_pages(each, row_bytes).sum()) for each in (of_batch, rows))
            if gathered + self.vectors[kept - 1] > self.most or pages > _MOST_PAGES * allowed:
                break
            kept -= 1
            gathered, rows = gathered + self.vectors[kept], rows + of_batch
        return kept


def planned(index: OpenedLists, labels: NDArray[np.uint32]) -> Plan:
    """Return which batches are written, for new vectors that lie in lists `labels`, uint32 (m, copies)."""
    shared, batches = index.files.centroids, Batches.of(index)
    kept = batches.kept(len(labels), cell_sizes(labels, shared.n_lists), shared.row_bytes)
    n = index.n + len(labels)
    return Plan(kept, [*range(sum(batches.vectors[:kept]), n, batches.most), n])


def coded(
    shared: Centroids, stored: NDArray[Any], labels: NDArray[np.uint32], scratch: Path,
    advance: Callable[[int], None],
) -> NewRows:  # fmt: skip
    """Return the rows of new vectors, written to directory `scratch`."""
    vectors, copy = np.nonzero(labels != NO_CELL)
    cells = labels[vectors, copy]
    rotated = None if shared.rotation is None else shared.centroids
    fitted = Fitted(shared.scale, shared.codebook, shared.rabitq, rotated)
    rows = create_npy(scratch / "rows.npy", np.dtype(np.uint8), (len(vectors), shared.row_bytes))
    for first in range(0, len(vectors), _BLOCK):
        part = slice(first, first + _BLOCK)
        rows[part] = encoded_rows(stored[vectors[part]], shared.centroids, cells[part], fitted, None)
        advance(len(rows[part]))
    return NewRows(vectors, cells, rows)


def write_batches(
    index: OpenedLists, new: NewRows, plan: Plan, directory: Path, advance: Callable[[int], None]
) -> list[NDArray[np.int64]]:
    """Write the batches of `plan` that are not taken over; `advance` counts rows.

    Memory: 32 bytes a new row, 20 a list of each batch that is written anew, and a piece of rows.

    Returns
    -------
    list of int64 array, shape (n_lists,)
        Rows of each list in each batch that was written.
    """
    anew = range(plan.kept, len(index.files.batches))
    with ListReader(index.files, anew) as old:
        return write_rows(index.files.centroids, new, plan, directory, advance, index.n, old)


def write_rows(
    shared: Centroids, new: NewRows, plan: Plan, directory: Path, advance: Callable[[int], None],
    first_new: int = 0, old: ListReader | None = None,
) -> list[NDArray[np.int64]]:  # fmt: skip
    """Write the batches of `plan` with the rows of new vectors, behind `old` ones; see `write_batches`.

    Parameters
    ----------
    first_new : int
        Vector id of the first new vector.
    """
    written = []
    for number, (first, last) in enumerate(pairwise(plan.bounds), plan.kept):
        begin, end = np.searchsorted(new.vectors + first_new, [first, last])
        order = begin + np.argsort(new.cells[begin:end], kind="stable")
        starts = np.searchsorted(new.cells[order], np.arange(shared.n_lists + 1))
        # all that is written anew lies in the first batch, which has room for it
        before = old if first < first_new else None
        sizes = np.diff(starts).astype(np.int64) + (np.int64(0) if before is None else before.sizes)
        pieces = _pieces(before, new, first_new, order, starts, sizes, advance)
        n_vectors = last - first if shared.copies > 1 else None
        write_batch(directory / batch_name(number), number, first, sizes, shared.row_bytes, pieces, n_vectors)
        written.append(sizes)
    return written


def _pieces(
    old: ListReader | None, new: NewRows, n_old: int, order: NDArray[np.int64], starts: NDArray[np.int64],
    sizes: NDArray[np.int64], advance: Callable[[int], None],
) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint8]]]:  # fmt: skip
    """Yield ids and rows, list after list in file order, old ones first."""
    for number in longest_first(sizes)[: np.count_nonzero(sizes)].tolist():
        if old is not None:
            for ids, rows in zip(old.ids(number), old.rows(number), strict=True):
                yield ids, rows
                advance(len(ids))
        mine = order[starts[number] : starts[number + 1]]
        for at in range(0, len(mine), _BLOCK):
            some = mine[at : at + _BLOCK]
            yield (new.vectors[some] + n_old).astype(np.uint32), new.rows[some]
            advance(len(some))


def lengths(shared: Centroids, cells: NDArray[np.uint32], rows: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the distance from the centroid of its list to what each row stands for.

    Parameters
    ----------
    cells : uint32 array, shape (m,)
    rows : uint8 array, shape (m, row_bytes)

    Returns
    -------
    float64 array, shape (m,)
    """
    if shared.rabitq is not None:
        return np.sqrt(np.ascontiguousarray(rows[:, :4]).view("<f4")[:, 0].astype(np.float64))
    if shared.codebook is not None:
        residuals = shared.codebook.decoded(rows)
    elif shared.scale is not None:
        residuals = shared.scale[0] + shared.scale[1] * rows.astype(np.float32) - shared.centroids[cells]
    else:
        vectors = np.ascontiguousarray(rows).view(shared.dtype).reshape(len(rows), -1)
        residuals = vectors.astype(np.float32) - shared.centroids[cells]
    found: NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", residuals, residuals, dtype=np.float64))
    return found
