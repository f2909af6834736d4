"""The batches of inverted lists as an append finds them, told by the sizes of their lists: none need be there yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.ivf.batch import list_pages
from indexmill.formats.ivf.lists import ListReader
from indexmill.pipeline.append.lists.opened import OpenedLists

#: As `pipeline.append.lists.batches` has it; a test holds the decisions of both equal.
_MOST_PAGES = 4


@dataclass(frozen=True)
class Batches:
    """The batches of an index.

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

    @staticmethod
    def merged(
        indexes: Sequence[OpenedLists], anew: Sequence[int], base: OpenedLists, rows: NDArray[np.float64]
    ) -> Batches:
        """Return about those that a merge makes.

        Parameters
        ----------
        anew : sequence of int
            Places of the indexes whose vectors are assigned anew.
        base : OpenedLists
            The index whose lists the result has.
        rows : float64 array, shape (n_lists,)
            Of each list of `base`; those of the result are taken to be as unlike.
        """
        found = list[int]()
        for at, index in enumerate(indexes):
            left = _left(index)
            for count in _cut(sum(left), base.most_vectors) if at in anew else left:
                if found and found[-1] + count <= base.most_vectors:
                    found[-1] += count
                elif count:
                    found.append(count)
        most = base.most_vectors
        if base.parameters.batch_vectors is None:
            most = max(most, sum(found))

        def spread(number: int) -> NDArray[np.int64]:
            return np.rint(rows * (found[number] / base.n)).astype(np.int64)

        return Batches(found, spread, most)

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


def _cut(n: int, most: int) -> list[int]:
    """Return the sizes of batches of `n` vectors, at most `most` each."""
    return [min(most, n - first) for first in range(0, n, most)]


def _left(index: OpenedLists) -> list[int]:
    """Return how many vectors of each batch of an index are not deleted."""
    ends = np.cumsum(index.files.batch_sizes())
    left: list[int] = np.diff(ends - np.searchsorted(index.deleted, ends), prepend=0).tolist()
    return left
