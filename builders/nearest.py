"""Nearest of a few points for many vectors, as matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.parallel import map_blocks

#: Rows a matrix product takes at a time: large enough for BLAS, and part of the result (never change it by
#: thread count: the last bits of a product may depend on the shape of its operands).
PRODUCT_ROWS = 8192
#: Up to this fanout, finding one minimum after another is faster than a sort.
_MOST_MINIMA = 8


def origin_of(points: NDArray[Any], integral: bool = False) -> NDArray[np.float32]:
    """Return a point, float32 (dim,), to measure from: the mean of `points`.

    |x|^2 - 2 x.p + |p|^2 loses all its digits when the vectors lie far from zero and close together, so both
    sides of a product are shifted by one origin first. With `integral` it is rounded, which keeps products of
    small integers exact.
    """
    mean = points.mean(axis=0, dtype=np.float64)
    origin: NDArray[np.float32] = (np.rint(mean) if integral else mean).astype(np.float32)
    return origin


def augment(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return A, float32 (dim + 1, n_points), with ``[x, 1] @ A = |p|^2 - 2 x.p``: |x - p|^2 less |x|^2."""
    norms = np.einsum("ij,ij->i", points, points)
    return np.ascontiguousarray(np.vstack([-2 * points.T, norms]), dtype=np.float32)


def with_one(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Return `vectors` (m, dim) as float32 with a column of ones appended."""
    out = np.ones((len(vectors), vectors.shape[1] + 1), np.float32)
    out[:, :-1] = vectors
    return out


def power_distances(
    vectors: NDArray[Any], points: NDArray[np.float32], weights: NDArray[np.float32]
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield blocks of rows and their ``|x - p|^2 + w - |x - o|^2``, float32 (rows, n_points).

    The origin o is the same for all, so differences within a row are those of the power distance.
    """
    origin = origin_of(points, vectors.dtype.kind in "iu")
    augmented = augment(points - origin)
    augmented[-1] += weights
    for first in range(0, len(vectors), PRODUCT_ROWS):
        rows = slice(first, min(first + PRODUCT_ROWS, len(vectors)))
        yield rows, with_one(vectors[rows] - origin) @ augmented


def nearest_points(
    vectors: NDArray[Any],
    points: NDArray[np.float32],
    fanout: int = 1,
    threads: int = 1,
    *,
    weights: NDArray[np.float32] | None = None,
) -> NDArray[np.uint32]:
    """Return the `fanout` points nearest to each vector, nearest first, ties by the smaller index.

    Parameters
    ----------
    vectors : array, shape (n_vectors, dim)
    points : float32 array, shape (n_points, dim)
    fanout : int
        At most n_points.
    weights : float32 array, shape (n_points,), optional
        Added to the squared distances (see `builders.balanced`).

    Returns
    -------
    uint32 array, shape (n_vectors, fanout)
    """
    origin = origin_of(points, vectors.dtype.kind in "iu")
    augmented = augment(points - origin)
    if weights is not None:
        augmented[-1] += weights

    def block(first: int, last: int) -> NDArray[np.uint32]:
        distances = with_one(vectors[first:last] - origin) @ augmented
        if fanout > _MOST_MINIMA:
            return np.argsort(distances, axis=1, kind="stable")[:, :fanout].astype(np.uint32)
        found = np.empty((last - first, fanout), np.uint32)
        for f in range(fanout):
            found[:, f] = distances.argmin(axis=1)
            np.put_along_axis(distances, found[:, f : f + 1].astype(np.int64), np.inf, 1)
        return found

    blocks = list(map_blocks(block, len(vectors), PRODUCT_ROWS, threads))
    return np.concatenate(blocks) if blocks else np.empty((0, fanout), np.uint32)
