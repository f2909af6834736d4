"""Nearest of a few points to many vectors, on a `Gpu`.

As in `builders.nearest.products`, scores are ``|p|^2 - 2 x.p``, by matrix products. For uint8 vectors they are exact:
up to `EXACT_DIM` components every float32 sum is an integer of at most 2^24, which float32 represents; beyond, products
are float64, which is exact for any dimension. Other vectors are first moved near zero, where float32 loses least.

The k least scores of a row are found by k searches for the least, each of which removes its answer. Ties go to the
smaller index, and k is small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.gpu import Gpu, uploaded
from indexmill.builders.nearest.products import origin_of

#: Components up to which all sums of a score of uint8 vectors, 255^2 dim at most, are exact in float32.
EXACT_DIM = (1 << 24) // 255**2


def nearest_on(gpu: Gpu, vectors: NDArray[Any], points: NDArray[Any], fanout: int) -> NDArray[np.uint32]:
    """Return the `fanout` points nearest to each vector, nearest first, ties by the smaller index.

    GPU memory: the points three times, and blocks of scores.

    Parameters
    ----------
    vectors : array, shape (n_vectors, dim)
    points : array, shape (n_points, dim)
        The result is exact if both arrays are uint8.
    fanout : int
        At most n_points.

    Returns
    -------
    uint32 array, shape (n_vectors, fanout)

    Raises
    ------
    BudgetError
        If the GPU's memory is too small.
    """
    n, dim = vectors.shape
    exact = vectors.dtype == np.uint8 and points.dtype == np.uint8
    dtype = product_dtype(exact, dim)
    origin = np.zeros(dim, dtype) if exact else origin_of(points, vectors.dtype.kind in "iu")
    found = np.empty((n, fanout), np.uint32)
    with gpu.use(f"the nearest of {len(points):,} points") as xp:
        centre = xp.asarray(origin)
        targets = uploaded(xp, points, dtype) - centre
        norms = (targets * targets).sum(axis=1)
        turned = targets.T * -2.0

        def block(first: int, last: int) -> None:
            scores = xp.matmul(uploaded(xp, vectors[first:last], dtype) - centre, turned)
            scores += norms
            places = least(xp, bounded(xp, scores), fanout, len(points))
            found[first:last] = gpu.host(places.astype(np.uint32))

        a_row = dtype.itemsize * (len(points) + 2 * dim) + vectors.dtype.itemsize * dim + 12 * fanout + 32
        gpu.blocks(n, a_row, block)
    return found


def product_dtype(exact: bool, dim: int) -> np.dtype[Any]:
    """Return the type of products: float32, unless it would round products of bytes."""
    return np.dtype(np.float64 if exact and dim > EXACT_DIM else np.float32)


def bounded(xp: Any, scores: Any) -> Any:
    """Replace NaN and infinity, which means no candidate, by the largest finite number, in place; return the scores.

    A vector that overflows is then equally far from all points.
    """
    return xp.fmin(scores, float(np.finfo(scores.dtype).max), out=scores)


def least(xp: Any, scores: Any, k: int, nothing: int) -> Any:
    """Return the places of the `k` least scores of each row, ascending, ties by the smaller place: int64 (m, k).

    Parameters
    ----------
    scores : array of the GPU, shape (m, n), n at least 1
        Overwritten. Infinity means no candidate.
    nothing : int
        Fills the places after the last candidate.
    """
    rows = xp.arange(len(scores))
    places = xp.empty((len(scores), k), np.int64)
    for i in range(k):
        first = scores.argmin(axis=1)
        places[:, i] = xp.where(scores[rows, first] == xp.inf, nothing, first)
        scores[rows, first] = xp.inf
    return places
