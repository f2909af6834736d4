"""What an index of inverted lists is to every target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports.rows import ExportedRows
from indexmill.formats.ivf_centroids import Centroids
from indexmill.formats.ivf_lists import ListReader

#: Bytes of a block, about.
_BLOCK_BYTES = 4 << 20
#: Lists that a search probes unless it says otherwise.
PROBES = 16


class ListBlock(NamedTuple):
    """Rows of lists, one after the other.

    Attributes
    ----------
    lists : uint32 array, shape (m,)
        The list that each stands in; ascending.
    ids : uint32 array, shape (m,)
        Vector ids.
    vectors : float32 array, shape (m, dim)
        As stored: of unit length under cosine, with the component that inner product adds; codes decoded.
    """

    lists: NDArray[np.uint32]
    ids: NDArray[np.uint32]
    vectors: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class ExportedLists(ExportedRows):
    """Inverted lists as targets see them: list by list, nothing of the index's size held but the ids.

    A slot is a vector id. A vector may stand in several lists.

    Attributes
    ----------
    shared : Centroids
    lists : ListReader
    """

    shared: Centroids
    lists: ListReader

    @property
    def dim(self) -> int:
        """Components of the user's vectors; inner product stores one more."""
        return self.shared.dim - (self.shared.metric == "ip")

    @property
    def metric(self) -> str:
        """``l2``, ``ip`` or ``cosine``."""
        return self.shared.metric

    @property
    def n_rows(self) -> int:
        """Rows of all lists."""
        return int(self.lists.sizes.sum())

    @property
    def repeats(self) -> bool:
        """Whether some vectors stand in several lists, so that engines may answer with one several times."""
        return self.n_rows > self.n

    @property
    def probes(self) -> int:
        """Lists that a search probes unless it says otherwise."""
        return min(PROBES, self.shared.n_lists)

    @cached_property
    def _numbers(self) -> NDArray[np.int64] | NDArray[np.uint64] | None:
        if self.ids == "slot" or self.user_ids is None:
            return None
        numbers: NDArray[np.int64] | NDArray[np.uint64] = self.user_ids.to_numpy()
        return numbers

    def whole_names(self, number: int) -> Iterator[NDArray[np.int64]]:
        """Yield what the engine is to call the vectors of list `number`, int64; `check_ids` says whether they fit."""
        for ids in self.lists.ids(number):
            yield (ids if self._numbers is None else self._numbers[ids]).astype(np.int64)

    def blocks(self) -> Iterator[ListBlock]:
        """Yield all lists by number, about 4 MiB of float32 at a time."""
        step = max(1, _BLOCK_BYTES // (4 * self.shared.dim))
        waiting: list[ListBlock] = []
        count = 0
        for number in np.flatnonzero(self.lists.sizes).tolist():
            for ids, rows in zip(self.lists.ids(number), self.lists.rows(number), strict=True):
                for first in range(0, len(ids), step):
                    some = ids[first : first + step]
                    vectors = self._decoded(number, rows[first : first + step])
                    waiting.append(ListBlock(np.full(len(some), number, np.uint32), some, vectors))
                    count += len(some)
                    if count >= step:
                        yield _joined(waiting)
                        waiting, count = [], 0
        if waiting:
            yield _joined(waiting)

    def _decoded(self, number: int, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return what rows of a list stand for, float32 (m, dim as stored)."""
        shared = self.shared
        if shared.scale is not None:
            decoded: NDArray[np.float32] = shared.scale[0] + shared.scale[1] * rows.astype(np.float32)
            return decoded
        if shared.codebook is None:
            return (
                np.ascontiguousarray(rows).view(np.dtype(shared.dtype).newbyteorder("<")).astype(np.float32)
            )
        decoded = np.repeat(shared.centroids[number][None], len(rows), axis=0)
        offsets = shared.codebook.offsets.tolist()
        for j, (first, last) in enumerate(pairwise(offsets)):
            decoded[:, first:last] += shared.codebook.pivots[rows[:, j], first:last]
        return decoded


def _joined(blocks: list[ListBlock]) -> ListBlock:
    return ListBlock(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))
