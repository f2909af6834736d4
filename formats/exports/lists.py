"""An index of inverted lists, as targets see it: list by list, or as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.exports.rows import DumpBlock, ExportedRows
from indexmill.formats.index.vectors import VectorsFile
from indexmill.formats.ivf.centroids import CENTROIDS_NAME, Centroids
from indexmill.formats.ivf.lists import ListReader
from indexmill.formats.pagefile.frame import corrupt

#: Approximate bytes of a block.
BLOCK_BYTES = 4 << 20
#: Lists that the printed search probes.
PROBES = 16


class ListBlock(NamedTuple):
    """Rows of lists, one after the other.

    Attributes
    ----------
    lists : uint32 array, shape (m,)
        List of each row.
    ids : uint32 array, shape (m,)
        Vector ids.
    vectors : array, shape (m, dim as stored)
        Of unit length for cosine, and with an additional component for inner product.
    """

    lists: NDArray[np.uint32]
    ids: NDArray[np.uint32]
    vectors: NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ExportedLists(ExportedRows):
    """Inverted lists as targets see them, read list by list; only the ids are in memory.

    A slot is a vector id, or a row after `by_row`. A vector may be in several lists.

    Attributes
    ----------
    shared : Centroids
    lists : ListReader
    exact : VectorsFile or None
        The exact vectors, if the index has them besides codes.
    home : uint32 array, shape (n,), or None
        After `by_row`, the list of each vector's row, by vector id; None if every vector is in one list.
    """

    KIND: ClassVar = "ivf"
    PARTITION: ClassVar = "list of the vector: vectors of a list are near each other."
    PARTS: ClassVar = frozenset({"codes", "clusters", "order", "pages", "ids", "metadata"})

    shared: Centroids
    lists: ListReader
    exact: VectorsFile | None = None
    home: NDArray[np.uint32] | None = None

    @property
    def dim(self) -> int:
        """Components of the user's vectors; inner product stores one more."""
        return self.shared.dim - (self.shared.metric == "ip")

    @property
    def metric(self) -> str:
        """``l2``, ``ip`` or ``cosine``."""
        return self.shared.metric

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the vectors of `pieces_in_file_order`: float32 where codes are decoded."""
        as_given = self.exact is not None or self.shared.codec == "flat"
        return np.dtype(self.shared.dtype if as_given else np.float32)

    @property
    def codes_alone(self) -> str | None:
        """See `ExportedRows.codes_alone`."""
        of_residuals = self.shared.codec in ("pq", "rabitq", "opq")
        return self.shared.codec if self.exact is None and of_residuals else None

    @property
    def n_rows(self) -> int:
        """Number of rows of all lists, or of `rows`."""
        is_by_row = self.home is not None or self.n < self.shared.n_vectors
        return self.n if is_by_row else int(self.lists.sizes.sum())

    @property
    def repeats(self) -> bool:
        """Whether some vectors are in several lists, so that engines may return a vector several times."""
        return self.n_rows > self.n

    @property
    def probes(self) -> int:
        """Lists that the printed search probes."""
        return min(PROBES, self.shared.n_lists)

    @cached_property
    def _numbers(self) -> NDArray[np.int64] | NDArray[np.uint64] | None:
        if self.ids == "slot" or self.user_ids is None:
            return None
        numbers: NDArray[np.int64] | NDArray[np.uint64] = self.user_ids.to_numpy()
        return numbers

    def whole_names(self, number: int) -> Iterator[NDArray[np.int64]]:
        """Yield the engine's ids of the vectors of list `number`, int64; `check_ids` must have accepted them."""
        for ids in self.lists.ids(number):
            yield (ids if self._numbers is None else self._numbers[ids]).astype(np.int64)

    def blocks(self) -> Iterator[ListBlock]:
        """Yield all lists by number, float32 with codes decoded, approximately 4 MiB at a time."""
        return _joined(self._pieces_by_number(), self.block_rows)

    @property
    def block_rows(self) -> int:
        """Rows of a block of 4 MiB of float32."""
        return max(1, BLOCK_BYTES // (4 * self.shared.dim))

    def _pieces_by_number(self) -> Iterator[ListBlock]:
        for number in np.flatnonzero(self.lists.sizes).tolist():
            for ids, rows in zip(self.lists.ids(number), self.lists.rows(number), strict=True):
                for part in self._cut(len(ids)):
                    vectors = self._decoded(number, rows[part]).astype(np.float32, copy=False)
                    yield _block(number, ids[part], vectors)

    def pieces_in_file_order(self) -> Iterator[ListBlock]:
        """Yield all lists in file order, with vectors of `dtype`: exact ones if there are any, else decoded codes.

        A piece has at most `block_rows` rows of one list. Exact vectors are read at random.
        """
        if self.exact is not None:
            for number, ids in self.lists.ids_in_file_order():
                for part in self._cut(len(ids)):
                    yield _block(number, ids[part], self.exact.take(ids[part]))
            return
        both = zip(self.lists.ids_in_file_order(), self.lists.rows_in_file_order(), strict=True)
        for (number, ids), (_, rows) in both:
            for part in self._cut(len(ids)):
                yield _block(number, ids[part], self._decoded(number, rows[part]))

    def by_row(self) -> ExportedLists:
        """Return the lists as rows, slot s in row s.

        The order is batch after batch, in each the lists from the longest to the shortest, in each list ascending by
        vector id. A vector in several lists is a row of the list with the nearest centroid, a deleted one none.

        Reads all ids, and also all rows if vectors are in several lists. Memory: 4 bytes a vector, or 12 if vectors
        are in several lists, and a copy of the user ids.

        Raises
        ------
        CorruptFile
            If vectors are missing in the lists, or a page's CRC differs.
        """
        home = _nearest_lists(self) if self.repeats else None
        order = np.empty(self.n, np.uint32)
        at = 0
        for number, ids in self.lists.ids_in_file_order():
            kept = ids if home is None else ids[home[ids] == number]
            order[at : at + len(kept)] = kept
            at += len(kept)
        if at != self.n:
            raise corrupt(CENTROIDS_NAME, "field 'n_vectors'", f"{at:,} as in the lists", f"{self.n:,}")
        if self.deleted is not None:
            order = order[~self.deleted[order]]
        user_ids = None if self.user_ids is None else self.user_ids.take(pa.array(order))
        return replace(self, vector_ids=order, user_ids=user_ids, home=home)

    def rows(self) -> Iterator[DumpBlock]:
        """Yield the rows of `by_row`, with the user's components, approximately 4 MiB of float32 at a time."""
        first = 0
        for block in _joined(self._rows_at_home(), self.block_rows):
            yield DumpBlock(first, block.lists.astype(np.int64), block.vectors, None)
            first += len(block.ids)

    def _rows_at_home(self) -> Iterator[ListBlock]:
        for block in self.pieces_in_file_order():
            kept = np.ones(len(block.ids), np.bool_)
            if self.home is not None:
                kept &= self.home[block.ids] == block.lists
            if self.deleted is not None:
                kept &= ~self.deleted[block.ids]
            yield ListBlock(block.lists[kept], block.ids[kept], block.vectors[kept, : self.dim])

    def _cut(self, n: int) -> Iterator[slice]:
        return (slice(first, first + self.block_rows) for first in range(0, n, self.block_rows))

    def _decoded(self, number: int, rows: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the vectors of rows of a list, (m, dim as stored); float32 if they are decoded from codes."""
        shared = self.shared
        assert shared.rabitq is None  # such rows stand for products, not for vectors
        if shared.scale is not None:
            decoded: NDArray[np.float32] = shared.scale[0] + shared.scale[1] * rows.astype(np.float32)
            return decoded
        if shared.codebook is None:
            return np.ascontiguousarray(rows).view(np.dtype(shared.dtype).newbyteorder("<"))
        decoded = np.repeat(shared.centroids[number][None], len(rows), axis=0)
        offsets = shared.codebook.offsets.tolist()
        for j, (first, last) in enumerate(pairwise(offsets)):
            decoded[:, first:last] += shared.codebook.pivots[rows[:, j], first:last]
        return shared.restored(decoded)


def _nearest_lists(index: ExportedLists) -> NDArray[np.uint32]:
    """Return the list with the nearest centroid among the lists of each vector, ties by the smaller number.

    Distances are float32, from the vectors of `ExportedLists.pieces_in_file_order`. Memory: 8 bytes a vector.
    """
    home = np.full(index.n, 2**32 - 1, np.uint32)
    least = np.full(index.n, np.inf, np.float32)
    for block in index.pieces_in_file_order():
        number = block.lists[0]
        compared = index.shared.compared(block.vectors.astype(np.float32))
        away = compared - index.shared.centroids[number]
        distances = np.einsum("ij,ij->i", away, away)
        before = least[block.ids]
        nearer = (distances < before) | ((distances == before) & (number < home[block.ids]))
        home[block.ids[nearer]] = number
        least[block.ids[nearer]] = distances[nearer]
    return home


def _joined(pieces: Iterable[ListBlock], rows: int) -> Iterator[ListBlock]:
    """Join consecutive pieces until they have at least `rows` rows."""
    waiting: list[ListBlock] = []
    count = 0
    for piece in pieces:
        waiting.append(piece)
        count += len(piece.ids)
        if count >= rows:
            yield _concatenated(waiting)
            waiting, count = [], 0
    if count:
        yield _concatenated(waiting)


def _concatenated(blocks: list[ListBlock]) -> ListBlock:
    return ListBlock(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))


def _block(number: int, ids: NDArray[np.uint32], vectors: NDArray[Any]) -> ListBlock:
    return ListBlock(np.full(len(ids), number, np.uint32), ids, vectors)
