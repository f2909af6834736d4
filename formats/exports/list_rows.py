"""Inverted lists as rows: every vector once, in the file order of lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.exports.lists import ExportedLists, ListBlock, joined
from indexmill.formats.exports.rows import ExportedRows
from indexmill.formats.ivf.centroids import CENTROIDS_NAME
from indexmill.formats.pagefile.frame import corrupt


@dataclass(frozen=True, kw_only=True)
class ListRows(ExportedRows):
    """Lists as rows for plain dumps: slot s is row s.

    The order is batch after batch, in each the lists from the longest to the shortest, in each list ascending by vector
    id. A vector in several lists is a row of the list with the nearest centroid.

    Attributes
    ----------
    lists : ExportedLists
    home : uint32 array, shape (n,), or None
        The list of each vector's row, by vector id; None if every vector is in one list.
    """

    lists: ExportedLists
    home: NDArray[np.uint32] | None

    @property
    def dim(self) -> int:
        """Components of the user's vectors; inner product stores one more."""
        return self.lists.dim

    @property
    def metric(self) -> str:
        """``l2``, ``ip`` or ``cosine``."""
        return self.lists.metric

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the vectors of `blocks`."""
        return self.lists.dtype

    def blocks(self) -> Iterator[ListBlock]:
        """Yield rows in slot order, with the user's components, approximately 4 MiB of float32 at a time."""
        return joined(self._pieces(), self.lists.block_rows)

    def _pieces(self) -> Iterator[ListBlock]:
        for block in self.lists.pieces_in_file_order():
            kept = slice(None) if self.home is None else self.home[block.ids] == block.lists
            yield ListBlock(block.lists[kept], block.ids[kept], block.vectors[kept, : self.dim])


def in_list_order(index: ExportedRows) -> ExportedRows:
    """Return inverted lists as rows; a graph, whose slots are rows already, is returned unchanged.

    Reads all ids, and also all rows if vectors are in several lists. Memory: 4 bytes a vector, or 12 if vectors are in
    several lists, and a copy of the user ids.

    Raises
    ------
    CorruptFile
        If vectors are missing in the lists, or a page's CRC differs.
    """
    if not isinstance(index, ExportedLists):
        return index
    home = _nearest_lists(index) if index.repeats else None
    order = np.empty(index.n, np.uint32)
    at = 0
    for number, ids in index.lists.ids_in_file_order():
        kept = ids if home is None else ids[home[ids] == number]
        order[at : at + len(kept)] = kept
        at += len(kept)
    if at != index.n:
        raise corrupt(CENTROIDS_NAME, "field 'n_vectors'", f"{at:,} as in the lists", f"{index.n:,}")
    return ListRows(
        vector_ids=order, user_ids=None if index.user_ids is None else index.user_ids.take(pa.array(order)),
        metadata_of=index.metadata_of, build_id=index.build_id, ids=index.ids, lists=index, home=home,
    )  # fmt: skip


def _nearest_lists(index: ExportedLists) -> NDArray[np.uint32]:
    """Return the list with the nearest centroid among the lists of each vector, ties by the smaller number.

    Distances are float32, from the vectors of `ExportedLists.pieces_in_file_order`. Memory: 8 bytes a vector.
    """
    home = np.full(index.n, 2**32 - 1, np.uint32)
    least = np.full(index.n, np.inf, np.float32)
    for block in index.pieces_in_file_order():
        number = block.lists[0]
        away = block.vectors.astype(np.float32) - index.shared.centroids[number]
        distances = np.einsum("ij,ij->i", away, away)
        before = least[block.ids]
        nearer = (distances < before) | ((distances == before) & (number < home[block.ids]))
        home[block.ids[nearer]] = number
        least[block.ids[nearer]] = distances[nearer]
    return home
