"""The batches of inverted lists that a merge makes, as a later append finds them: none need be there yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.append.lists.batches import Batches
from indexmill.pipeline.append.lists.opened import OpenedLists


def merged(
    indexes: Sequence[OpenedLists], anew: Sequence[int], base: OpenedLists, rows: NDArray[np.float64]
) -> Batches:
    """Return about the batches that a merge makes.

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


def _cut(n: int, most: int) -> list[int]:
    """Return the sizes of batches of `n` vectors, at most `most` each."""
    return [min(most, n - first) for first in range(0, n, most)]


def _left(index: OpenedLists) -> list[int]:
    """Return how many vectors of each batch of an index are not deleted."""
    ends = np.cumsum(index.files.batch_sizes())
    left: list[int] = np.diff(ends - np.searchsorted(index.deleted, ends), prepend=0).tolist()
    return left
