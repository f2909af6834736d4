"""Exact nearest centroids: the cells that vectors belong to and that queries probe.

Matrix products find a few candidate centroids, and distances computed in float64 decide between them. Vectors of bytes
are first compared in integers with rounded centroids. The triangle inequality bounds the effect of rounding; the few
vectors that the bound leaves undecided go through the products.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import comparable
from indexmill.builders.gpu import Gpu
from indexmill.builders.nearest.gpu import nearest_on
from indexmill.builders.nearest.panels import MAX_DIM
from indexmill.builders.nearest.points import Points
from indexmill.builders.nearest.products import PRODUCT_ROWS, nearest_points
from indexmill.formats.kernel import kernel
from indexmill.reader.threads import run_blocks

#: Candidates beyond the wanted number, because products are float32; and the largest wanted number for which rounded
#: centroids are compared in integers (twice the wanted number plus two of them): beyond, products are faster.
_SPARE, _MOST_ROUNDED = 3, 8
#: Largest wanted number for which lists are kept by insertion, and pairs of rows and cells sorted at a time beyond it.
_MOST_FOUND, _SORTED = 256, 1 << 20
#: Far above the rounding error of a float64 distance.
_ROUNDING = 1e-6
#: Rows of a task when several threads work: small enough that two threads share a few thousand queries.
_PROBED = 1024
#: Rows of a task that computes exact distances.
_BLOCK = 4096


class Cells:
    """Search for the cell of each vector.

    Memory: the centroids, and for vectors of bytes the rounded centroids as floats and as bytes. `nearest` holds 64
    bytes a vector, the centroids three times, and 4,096 vectors as float32 for each thread.

    Parameters
    ----------
    centroids : float32 array, shape (n_cells, dim)
    dtype : numpy dtype
        Type of the vectors to search for.
    gpu : Gpu, optional
        Finds the candidates in place of the processor, which still computes the distances that decide.
    """

    def __init__(self, centroids: NDArray[np.float32], dtype: np.dtype[Any], gpu: Gpu | None = None) -> None:
        self.centroids = centroids
        self._points, self._gpu = None, gpu
        if gpu is None and dtype.name in ("uint8", "int8") and centroids.shape[1] <= MAX_DIM:
            info = np.iinfo(dtype)
            rounded = np.clip(np.rint(centroids), info.min, info.max)
            self._points = Points(comparable(rounded.astype(dtype)))
            self._rounded = rounded.astype(np.float32)
            self._off = _farthest(centroids, rounded) + _ROUNDING

    def nearest(self, vectors: NDArray[Any], threads: int = 1) -> NDArray[np.uint32]:
        """Return the nearest centroid of each vector (m, dim), ties by the smaller number: uint32 (m,)."""
        return self.nearest_few(vectors, 1, threads)[:, 0]

    def nearest_few(self, vectors: NDArray[Any], nprobe: int, threads: int = 1) -> NDArray[np.uint32]:
        """Return the result of `nearest_cells`; for few cells and vectors of bytes in a third of the time."""
        if self._points is None or nprobe > _MOST_ROUNDED:
            return nearest_cells(vectors, self.centroids, nprobe, threads, self._gpu)
        fanout = min(2 * nprobe + 2, len(self.centroids))
        candidates = self._points.nearest(comparable(vectors), fanout, threads)
        cells, keys = _ranked(vectors, self.centroids, candidates, threads)
        if fanout == len(self.centroids):
            return cells[:, :nprobe]
        last = vectors.astype(np.float32) - self._rounded[candidates[:, -1]]
        beyond = np.sqrt(np.einsum("ij,ij->i", last, last, dtype=np.float64)) - self._off
        # Every other centroid is at least `beyond` away. Where this does not decide, all centroids are compared.
        doubtful = np.flatnonzero(np.sqrt(keys[:, nprobe - 1]) >= beyond)
        if len(doubtful):
            cells[doubtful, :nprobe] = nearest_cells(vectors[doubtful], self.centroids, nprobe, threads)
        return cells[:, :nprobe]


def _farthest(centroids: NDArray[np.float32], rounded: NDArray[np.float32]) -> float:
    """Return a tight upper bound of the distance between a centroid and its rounded version."""
    most, dim = 0.0, int(centroids.shape[1])
    for first in range(0, len(centroids), _BLOCK):
        apart = centroids[first : first + _BLOCK] - rounded[first : first + _BLOCK]
        most = max(most, float(np.einsum("ij,ij->i", apart, apart).max()))
    return float(math.sqrt(most) * (1 + dim * 2.0**-23))  # the rounding error of a float32 sum of dim squares


def nearest_cells(
    vectors: NDArray[Any],
    centroids: NDArray[np.float32],
    nprobe: int,
    threads: int = 1,
    gpu: Gpu | None = None,
) -> NDArray[np.uint32]:
    """Return the `nprobe` nearest centroids of each vector, nearest first, ties by the smaller number.

    Parameters
    ----------
    vectors : array, shape (m, dim)
    centroids : float32 array, shape (n_cells, dim)
    nprobe : int
        At most n_cells.
    gpu : Gpu, optional
        Finds the candidates if `nprobe` is at most 256.

    Returns
    -------
    uint32 array, shape (m, nprobe)
    """
    if nprobe > _MOST_FOUND:  # insertion is slow in long lists
        parts = [np.empty((0, nprobe), np.uint32)]
        step = max(1, _SORTED // len(centroids))
        for first in range(0, len(vectors), step):
            rows = vectors[first : first + step]
            all_cells = np.tile(np.arange(len(centroids), dtype=np.uint32), (len(rows), 1))
            parts.append(_ranked(rows, centroids, all_cells, threads)[0][:, :nprobe])
        return np.concatenate(parts)
    fanout = min(nprobe + _SPARE, len(centroids))
    if gpu is not None:
        candidates = nearest_on(gpu, vectors, centroids, fanout)
    else:
        block_rows = PRODUCT_ROWS if threads == 1 else _PROBED  # either way products have the same tiles
        candidates = nearest_points(vectors, centroids, fanout, threads, block_rows=block_rows)
    return _ranked(vectors, centroids, candidates, threads)[0][:, :nprobe]


def _ranked(
    vectors: NDArray[Any], centroids: NDArray[np.float32], candidates: NDArray[np.uint32], threads: int
) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
    """Return the candidates sorted by exact distance, ties by number, and their squared distances."""
    keys, points = np.empty(candidates.shape, np.float64), np.require(centroids, np.float32, ["C", "W"])

    def block(first: int, last: int) -> None:
        rows = np.require(vectors[first:last], np.float32, ["C", "W"])
        _distances(rows, points, candidates[first:last], keys[first:last])

    run_blocks(block, len(vectors), _BLOCK, threads)
    order = np.lexsort((candidates, keys), axis=1)
    return np.take_along_axis(candidates, order, 1), np.take_along_axis(keys, order, 1)


@kernel
def _distances(rows: Any, centroids: Any, candidates: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write squared distances, float64, as four partial sums: the same bits on every machine."""
    dim = rows.shape[1]
    whole = dim // 4 * 4
    for i in range(rows.shape[0]):
        for r in range(candidates.shape[1]):
            centre = centroids[candidates[i, r]]
            a = b = c = d = 0.0
            for j in range(0, whole, 4):
                a += (np.float64(rows[i, j]) - centre[j]) ** 2
                b += (np.float64(rows[i, j + 1]) - centre[j + 1]) ** 2
                c += (np.float64(rows[i, j + 2]) - centre[j + 2]) ** 2
                d += (np.float64(rows[i, j + 3]) - centre[j + 3]) ** 2
            for j in range(whole, dim):
                a += (np.float64(rows[i, j]) - centre[j]) ** 2
            out[i, r] = (a + b) + (c + d)
