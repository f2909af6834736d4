"""Nearest neighbours of every vector within its leaves, on a `Gpu`: leaves of one size form one batched product.

Scores are those of `builders.nearest.gpu`, so lists of uint8 vectors equal the processor's, bit for bit.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.gpu import Gpu, sent, uploaded
from indexmill.builders.nearest.gpu import bounded, least, product_dtype
from indexmill.builders.partition.carve import Leaves
from indexmill.builders.partition.leaf_lists import NOBODY

#: Leaves are padded to a multiple of this width, so that few shapes occur; most leaves of a product.
_WIDTH, _MOST_LEAVES = 64, 16384
#: Vectors stay on the GPU if they take at most the free memory divided by this.
_KEPT = 2
#: Fills the places after a leaf's last member.
_NO_PLACE = 0xFFFF


def leaf_lists_on(
    gpu: Gpu, vectors: NDArray[Any], leaves: Leaves, k: int, rows: NDArray[Any]
) -> NDArray[np.uint32]:
    """Return the `k` nearest neighbours of every copy of a vector, as `builders.partition.leaf_lists.leaf_lists`.

    GPU memory: the vectors, if they take at most half of the free memory (else the rows of every batch are sent), and
    blocks of scores, one for every pair of members.

    Parameters
    ----------
    vectors : uint8, float16 or float32 array, shape (n_vectors, dim), C-contiguous
    leaves : Leaves
        With at most 65,535 members each.
    k : int
    rows : uint32 or int64 array, shape (n_copies,)
        Row for the list of each copy: a permutation.

    Returns
    -------
    uint32 array, shape (n_copies, k)
        Ids, nearest first, ties by the smaller id, filled up with `NOBODY`.

    Raises
    ------
    BudgetError
        If the GPU's memory is too small.
    """
    sizes = np.diff(leaves.starts)
    widths = -(-sizes // _WIDTH) * _WIDTH
    found = np.full((len(leaves.members), k), NOBODY, np.uint32)
    with gpu.use("the products of a leaf") as xp:
        source = _Rows(xp, vectors, vectors.nbytes <= gpu.free_bytes() // _KEPT)
        for width in np.unique(widths[sizes > 0]).tolist():
            alike = np.flatnonzero(widths == width)
            fill = partial(_fill, gpu, xp, source, leaves, alike, width, rows, found)
            a_leaf = width * (source.dtype.itemsize * width + source.work_bytes + 12 * min(k, width) + 40)
            gpu.blocks(len(alike), a_leaf, fill, _MOST_LEAVES)
    return found


class _Rows:
    """Rows for products, kept on the GPU or gathered in main memory.

    Attributes
    ----------
    dtype : numpy dtype
    exact : bool
        Whether products are exact.
    work_bytes : int
        GPU memory of a row while its leaf is processed: the row as sent, and four converted copies.
    """

    def __init__(self, xp: Any, vectors: NDArray[Any], keep: bool) -> None:
        self._xp, self._vectors = xp, vectors
        self._kept = sent(xp, vectors) if keep else None
        self.exact = vectors.dtype == np.uint8
        self.dtype = product_dtype(self.exact, vectors.shape[1])
        self.work_bytes = vectors.shape[1] * (vectors.dtype.itemsize + 4 * self.dtype.itemsize)

    def take(self, ids: NDArray[np.int64]) -> Any:
        """Return rows (*ids.shape, dim)."""
        if self._kept is None:
            return uploaded(self._xp, self._vectors[ids], self.dtype)
        return self._kept[self._xp.asarray(ids)].astype(self.dtype)


def _fill(
    gpu: Gpu, xp: Any, source: _Rows, leaves: Leaves, alike: NDArray[np.int64], width: int, to: NDArray[Any],
    found: NDArray[np.uint32], first: int, last: int,
) -> None:  # fmt: skip
    """Fill the lists of the leaves `alike[first:last]`, of at most `width` members, by one batched product."""
    starts, ends = leaves.starts[alike[first:last], None], leaves.starts[alike[first:last] + 1, None]
    slots = starts + np.arange(width)
    there = slots < ends
    # Leaves are padded with their first member, which does not count.
    rows = source.take(leaves.members[np.where(there, slots, starts)].astype(np.int64))
    if not source.exact:  # far from zero, products would lose distances to rounding
        shares = xp.asarray((there / (ends - starts)).astype(source.dtype))
        rows -= xp.matmul(shares[:, None, :], rows)
    scores = xp.matmul(rows, rows.transpose(0, 2, 1))
    scores *= -2.0
    scores += (rows * rows).sum(axis=2)[:, None, :]
    bounded(xp, scores)
    scores += xp.asarray(np.where(there, 0, np.inf).astype(source.dtype))[:, None, :]
    scores.reshape(len(starts), -1)[:, :: width + 1] = xp.inf  # a vector is not its own neighbour
    k = min(found.shape[1], width - 1)
    places = gpu.host(least(xp, scores.reshape(-1, width), k, _NO_PLACE)).reshape(len(starts), width, k)
    here = places != _NO_PLACE
    ids = leaves.members[np.where(here, starts[:, :, None] + places, 0)]
    found[to[slots[there]], :k] = np.where(here, ids, NOBODY)[there]
