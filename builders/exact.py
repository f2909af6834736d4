"""Exact nearest neighbours by blocks of matrix products: truth for certificates and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.nearest import augment, origin_of, with_one
from indexmill.builders.parallel import map_blocks

#: Rows that a product takes at a time, and bytes of them as float32: at most.
BLOCK_ROWS, BLOCK_BYTES = 8192, 8 << 20
#: Candidates kept beyond k: the product ranks them with float32 rounding, the final order is computed exactly.
_MARGIN = 16


def exact_neighbours(
    base: NDArray[Any], queries: NDArray[Any], k: int, threads: int = 1, skip: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """Return the k nearest rows of `base` to each query by squared Euclidean distance.

    Parameters
    ----------
    base : array, shape (n_vectors, dim)
    queries : array, shape (n_queries, dim)
    k : int
        At most n_vectors, or n_vectors - 1 with `skip`.
    skip : int64 array, shape (n_queries,), optional
        One row of `base` for each query that does not count (the query itself).

    Returns
    -------
    ids : uint32 array, shape (n_queries, k)
        Nearest first, ties by the smaller id.
    distances : float32 array, shape (n_queries, k)
        Computed in float64 from the vectors, not by the product.
    """
    origin = origin_of(queries, base.dtype.kind in "iu")
    augmented = augment(np.asarray(queries, dtype=np.float32) - origin)
    keep = min(k + _MARGIN, len(base))
    rows_at_once = min(BLOCK_ROWS, max(2 * keep, BLOCK_BYTES // (4 * base.shape[1])))

    def block(first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        rows = np.asarray(base[first:last], dtype=np.float32) - origin
        # |x - q|^2 - |q|^2 = [x, 1] @ augmented + |x|^2 - |q|^2; the query's own norm does not change its order.
        distances = (with_one(rows)[:, :-1] @ augmented[:-1]).T
        distances += np.einsum("ij,ij->i", rows, rows)
        if skip is not None:
            mine = np.flatnonzero((skip >= first) & (skip < last))
            distances[mine, skip[mine] - first] = np.inf
        if last - first > keep:
            best = np.argpartition(distances, keep - 1, axis=1)[:, :keep]
        else:
            best = np.broadcast_to(np.arange(last - first), distances.shape)
        return best + first, np.take_along_axis(distances, best, 1)

    found = list(map_blocks(block, len(base), rows_at_once, threads))
    ids = np.concatenate([part[0] for part in found], axis=1)
    rough = np.concatenate([part[1] for part in found], axis=1)
    best = np.argsort(rough, axis=1, kind="stable")[:, :keep]
    ids, rough = np.take_along_axis(ids, best, 1), np.take_along_axis(rough, best, 1)
    exact = np.empty(ids.shape)
    step = max(1, BLOCK_BYTES // (8 * ids.shape[1] * base.shape[1]))
    for first in range(0, len(queries), step):
        some = slice(first, first + step)
        differences = base[ids[some]].astype(np.float64) - queries[some, None, :].astype(np.float64)
        exact[some] = np.einsum("qkd,qkd->qk", differences, differences)
    exact[np.isinf(rough)] = np.inf
    final = np.lexsort((ids, exact), axis=1)[:, :k]
    return (
        np.take_along_axis(ids, final, 1).astype(np.uint32),
        np.take_along_axis(exact, final, 1).astype(np.float32),
    )
