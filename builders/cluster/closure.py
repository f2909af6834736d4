"""The cells that a vector belongs to where it may lie in several: SPANN's closure assignment (section 3.2.2).

A vector goes to its nearest cell, and to others whose centroid is not much farther, up to a number of copies. The rule
of relative neighbourhood graphs leaves out a cell whose centroid is nearer to a chosen one than to the vector: it lies
in the same direction, and its lists would be probed together with the chosen one's.

Deviation: the paper compares a cell with the one chosen before it, this with all chosen ones, as a graph's prune does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.cluster.cells import nearest_cells
from indexmill.builders.gpu import Gpu

#: Marks places beyond a vector's last cell.
NO_CELL = 0xFFFFFFFF
#: Cells that are looked at for each copy: the rule leaves most of them out.
_PER_COPY = 4
#: Cells of vectors that are counted at a time.
_COUNTED = 1 << 18


def closure_cells(
    vectors: NDArray[Any],
    centroids: NDArray[np.float32],
    copies: int,
    slack: float,
    gpu: Gpu | None = None,
) -> NDArray[np.uint32]:
    """Return the cells of each vector, nearest first.

    Parameters
    ----------
    vectors : array, shape (m, dim)
    centroids : float32 array, shape (n_cells, dim)
    copies : int
        F, at least 1.
    slack : float
        epsilon: a centroid may be 1 + epsilon times as far away as the nearest one.
    gpu : Gpu, optional
        Of `nearest_cells`.

    Returns
    -------
    uint32 array, shape (m, copies)
        `NO_CELL` where a vector has fewer.
    """
    wanted = min(_PER_COPY * copies, len(centroids))
    candidates = nearest_cells(vectors, centroids, wanted, gpu=gpu)
    found = np.full((len(vectors), copies), NO_CELL, np.uint32)
    rows = np.require(vectors, np.float32, ["C", "W"])
    _choose(rows, np.require(centroids, np.float32, ["C", "W"]), candidates, (1.0 + slack) ** 2, found)
    return found


def cell_sizes(cells: NDArray[np.uint32], n_cells: int) -> NDArray[np.int64]:
    """Return how many vectors lie in each cell, copies counted: int64 (n_cells,).

    Memory: the result twice, and 5 MiB.

    Parameters
    ----------
    cells : uint32 array, shape (n, copies)
        Of `closure_cells`; may be a mapped file.
    n_cells : int
    """
    sizes, step = np.zeros(n_cells, np.int64), max(1, _COUNTED // cells.shape[1])
    for first in range(0, len(cells), step):
        some = cells[first : first + step]
        sizes += np.bincount(some[some != NO_CELL], minlength=n_cells)
    return sizes


@njit(nogil=True, cache=True)
def _squared(a: Any, b: Any) -> float:  # pragma: no cover - compiled
    total = 0.0
    for j in range(len(a)):
        total += (np.float64(a[j]) - b[j]) ** 2
    return total


@njit(nogil=True, cache=True)
def _choose(rows: Any, centroids: Any, candidates: Any, reach: float, found: Any) -> None:  # pragma: no cover
    """Fill `found` from `candidates`, which are in the order of their distances."""
    for i in range(rows.shape[0]):
        found[i, 0] = candidates[i, 0]
        n, limit = 1, reach * _squared(rows[i], centroids[candidates[i, 0]])
        for at in range(1, candidates.shape[1]):
            if n == found.shape[1]:
                break
            cell = candidates[i, at]
            distance = _squared(rows[i], centroids[cell])
            if distance > limit:
                break
            is_apart = True
            for chosen in range(n):
                if _squared(centroids[found[i, chosen]], centroids[cell]) < distance:
                    is_apart = False
                    break
            if is_apart:
                found[i, n] = cell
                n += 1
