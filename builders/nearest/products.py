"""Nearest of a few points to many vectors, by matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.reader.threads import map_blocks

#: Rows of a task: large enough for BLAS. It affects results, so it must not depend on the number of threads: the last
#: bits of a product may depend on the shape of its operands.
PRODUCT_ROWS = 8192
#: Rows and points of a product, which is searched while it is in a core's own cache. They affect results, too.
TILE_ROWS, TILE_POINTS = 512, 1024
#: Scores tested together: most runs hold nothing nearer than the known points.
_RUN = 64
#: Fills the end of short lists.
_NOTHING = 0xFFFFFFFF


def origin_of(points: NDArray[Any], integral: bool = False) -> NDArray[np.float32]:
    """Return the origin of distances, float32 (dim,): the mean of `points`.

    |x|^2 - 2 x.p + |p|^2 loses all its digits if the vectors lie far from zero and close together, so the origin is
    first subtracted from both sides of a product. With `integral` it is rounded, which keeps products of small integers
    exact.
    """
    mean = points.mean(axis=0, dtype=np.float64)
    origin: NDArray[np.float32] = (np.rint(mean) if integral else mean).astype(np.float32)
    return origin


def augment(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return A, float32 (dim + 1, n_points), with ``[x, 1] @ A = |p|^2 - 2 x.p``: |x - p|^2 minus |x|^2."""
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
    """Yield blocks of rows with ``|x - p|^2 + w - |x - o|^2``, float32 (rows, n_points).

    The origin o is constant, so differences within a row are those of the power distance.
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
    block_rows: int = PRODUCT_ROWS,
) -> NDArray[np.uint32]:
    """Return the `fanout` points nearest to each vector, nearest first, ties by the smaller index.

    Parameters
    ----------
    vectors : array, shape (n_vectors, dim)
    points : float32 array, shape (n_points, dim)
    fanout : int
        At most n_points.
    weights : float32 array, shape (n_points,), optional
        Added to the squared distances (see `builders.cluster.balanced`).
    block_rows : int
        Vectors of a task, a multiple of `TILE_ROWS`, the rows of a product.

    Returns
    -------
    uint32 array, shape (n_vectors, fanout)
    """
    origin = origin_of(points, vectors.dtype.kind in "iu")
    augmented = augment(points - origin)
    if weights is not None:
        augmented[-1] += weights
    ids = np.arange(len(points), dtype=np.uint32)

    def block(first: int, last: int) -> NDArray[np.uint32]:
        distances = np.full((last - first, fanout), np.inf, np.float32)
        found = np.full((last - first, fanout), _NOTHING, np.uint32)
        scores = np.empty(TILE_ROWS * min(TILE_POINTS, len(points)), np.float32)
        for top in range(first, last, TILE_ROWS):
            numbers = np.arange(top, min(top + TILE_ROWS, last)) - first
            rows = with_one(vectors[top : min(top + TILE_ROWS, last)] - origin)
            for at in range(0, len(points), TILE_POINTS):
                tile_ids = ids[at : at + TILE_POINTS]
                tile = scores[: len(rows) * len(tile_ids)].reshape(len(rows), len(tile_ids))
                np.matmul(rows, augmented[:, at : at + TILE_POINTS], out=tile)
                keep_nearest(tile, numbers, tile_ids, distances, found)
        # A row that overflows is equally near to all points; its answers must still be distinct.
        found[np.isinf(distances[:, -1])] = ids[:fanout]
        return found

    blocks = list(map_blocks(block, len(vectors), block_rows, threads))
    return np.concatenate(blocks) if blocks else np.empty((0, fanout), np.uint32)


@kernel
def keep_nearest(
    scores: Any, rows: Any, ids: Any, distances: Any, found: Any
) -> None:  # pragma: no cover - compiled
    """Merge a tile of scores (m, n) into the lists of its rows, each ascending by (distance, id)."""
    n, last = ids.size, found.shape[1] - 1
    for i in range(rows.size):
        row = rows[i]
        limit = distances[row, last]
        for run in range((n + _RUN - 1) // _RUN):
            first = run * _RUN
            size = min(_RUN, n - first)
            near = np.int32(0)  # counting compiles to vector instructions, unlike a minimum
            for j in range(size):
                near += np.int32(scores[i, first + j] <= limit)
            if near == 0:
                continue
            for j in range(size):
                score, name = scores[i, first + j], ids[first + j]
                if not (score < limit or (score == limit and name < found[row, last])):
                    continue  # NaN, too
                at = last
                while at > 0 and (
                    distances[row, at - 1] > score
                    or (distances[row, at - 1] == score and found[row, at - 1] > name)
                ):
                    distances[row, at], found[row, at] = distances[row, at - 1], found[row, at - 1]
                    at -= 1
                distances[row, at], found[row, at] = score, name
                limit = distances[row, last]
