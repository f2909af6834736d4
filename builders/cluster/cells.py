"""The cells that vectors belong to and that queries probe: nearest centroids, exactly.

Products find a few centroids that may be nearest, and distances computed in float64 decide. Bytes are compared with
rounded centroids in integers first: what rounding may hide is bounded by the triangle inequality, and the few vectors
for which the bound does not decide go through the products.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.distances import comparable
from indexmill.builders.gpu import Gpu
from indexmill.builders.nearest.gpu import nearest_on
from indexmill.builders.nearest.panels import MAX_DIM, in_panels, nearest_in_panels
from indexmill.builders.nearest.products import PRODUCT_ROWS, nearest_points
from indexmill.reader.threads import run_blocks

#: Centroids looked at beyond those wanted: products are float32. Integers know rounded centroids only: of them as many
#: again as are wanted and two, up to so many wanted; for more the products decide sooner.
_SPARE, _MOST_ROUNDED = 3, 8
#: Cells up to which the nearest are found one by one, and pairs of rows and cells that are sorted at a time beyond.
_MOST_FOUND, _SORTED = 256, 1 << 20
#: Far more than float64 loses of a distance.
_ROUNDING = 1e-6
#: Rows whose cells are found at a time: two threads share what a few thousand queries probe.
_PROBED = 1024
#: Rows whose distances are computed at a time.
_BLOCK = 4096


class Cells:
    """Finds the cell of each vector.

    Memory: the centroids, and for bytes these rounded, as floats and as bytes; `nearest` holds 64 bytes a vector, the
    centroids three times, and for each thread 4,096 vectors as float32.

    Parameters
    ----------
    centroids : float32 array, shape (n_cells, dim)
    dtype : numpy dtype
        Of the vectors to come.
    gpu : Gpu, optional
        Where candidates are found, in place of here; distances computed here decide all the same.
    """

    def __init__(self, centroids: NDArray[np.float32], dtype: np.dtype[Any], gpu: Gpu | None = None) -> None:
        self.centroids = centroids
        self._panels, self._gpu = None, gpu
        if gpu is None and dtype.name in ("uint8", "int8") and centroids.shape[1] <= MAX_DIM:
            info = np.iinfo(dtype)
            rounded = np.clip(np.rint(centroids), info.min, info.max)
            self._panels = in_panels(comparable(rounded.astype(dtype)))
            self._rounded = rounded.astype(np.float32)
            self._off = _farthest(centroids, rounded) + _ROUNDING

    def nearest(self, vectors: NDArray[Any], threads: int = 1) -> NDArray[np.uint32]:
        """Return the nearest centroid of each vector (m, dim), ties by the smaller number: uint32 (m,)."""
        return self.nearest_few(vectors, 1, threads)[:, 0]

    def nearest_few(self, vectors: NDArray[Any], nprobe: int, threads: int = 1) -> NDArray[np.uint32]:
        """Return what `nearest_cells` does, for a few of them and bytes in a third of the time."""
        if self._panels is None or nprobe > _MOST_ROUNDED:
            return nearest_cells(vectors, self.centroids, nprobe, threads, self._gpu)
        bytes_ = comparable(vectors)
        fanout = min(2 * nprobe + 2, len(self.centroids))
        candidates = nearest_in_panels(bytes_, self._panels, fanout, threads)
        cells, keys = _ranked(vectors, self.centroids, candidates, threads)
        if fanout == len(self.centroids):
            return cells[:, :nprobe]
        last = vectors.astype(np.float32) - self._rounded[candidates[:, -1]]
        beyond = np.sqrt(np.einsum("ij,ij->i", last, last, dtype=np.float64)) - self._off
        # Every other centroid is at least `beyond` away. Where that does not settle it, look at all of them.
        doubtful = np.flatnonzero(np.sqrt(keys[:, nprobe - 1]) >= beyond)
        if len(doubtful):
            cells[doubtful, :nprobe] = nearest_cells(vectors[doubtful], self.centroids, nprobe, threads)
        return cells[:, :nprobe]


def _farthest(centroids: NDArray[np.float32], rounded: NDArray[np.float32]) -> float:
    """Return a distance from what it is rounded to that no centroid exceeds, and hardly more than the largest."""
    most, dim = 0.0, int(centroids.shape[1])
    for first in range(0, len(centroids), _BLOCK):
        apart = centroids[first : first + _BLOCK] - rounded[first : first + _BLOCK]
        most = max(most, float(np.einsum("ij,ij->i", apart, apart).max()))
    return float(math.sqrt(most) * (1 + dim * 2.0**-23))  # float32 loses no more of a sum of so many squares


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
        Where candidates are found, up to 256 cells.

    Returns
    -------
    uint32 array, shape (m, nprobe)
    """
    if nprobe > _MOST_FOUND:  # lists are kept by insertion, which does not go with long ones
        parts = [np.empty((0, nprobe), np.uint32)]
        step = max(1, _SORTED // len(centroids))
        for first in range(0, len(vectors), step):
            some = vectors[first : first + step]
            everywhere = np.tile(np.arange(len(centroids), dtype=np.uint32), (len(some), 1))
            parts.append(_ranked(some, centroids, everywhere, threads)[0][:, :nprobe])
        return np.concatenate(parts)
    fanout = min(nprobe + _SPARE, len(centroids))
    if gpu is not None:
        found = nearest_on(gpu, vectors, centroids, fanout)
    else:
        rows = PRODUCT_ROWS if threads == 1 else _PROBED  # of which products see tiles that are the same
        found = nearest_points(vectors, centroids, fanout, threads, block_rows=rows)
    return _ranked(vectors, centroids, found, threads)[0][:, :nprobe]


def _ranked(
    vectors: NDArray[Any], centroids: NDArray[np.float32], candidates: NDArray[np.uint32], threads: int
) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
    """Return candidates by their true distance, ties by number, and their squared distances."""
    keys, points = np.empty(candidates.shape, np.float64), np.require(centroids, np.float32, ["C", "W"])

    def block(first: int, last: int) -> None:
        rows = np.require(vectors[first:last], np.float32, ["C", "W"])
        _distances(rows, points, candidates[first:last], keys[first:last])

    run_blocks(block, len(vectors), _BLOCK, threads)
    order = np.lexsort((candidates, keys), axis=1)
    return np.take_along_axis(candidates, order, 1), np.take_along_axis(keys, order, 1)


@njit(nogil=True, cache=True)
def _distances(rows: Any, centroids: Any, candidates: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write squared distances, float64: four sums side by side, the same on every machine."""
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
