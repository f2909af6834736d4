"""Assignment of a vector to several cells: SPANN's closure assignment (section 3.2.2).

A vector goes to its nearest cell, and to other cells whose centroid is not much farther, up to a number of copies. The
rule of relative neighbourhood graphs leaves out a cell whose centroid is nearer to a chosen centroid than to the
vector: such a cell lies in the same direction, and a search would probe it together with the chosen one.

Deviation: the paper compares a cell with the one chosen last; here it is compared with all chosen cells, as in a
graph's prune.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.cells import nearest_cells
from indexmill.builders.gpu import Gpu
from indexmill.formats.kernel import kernel

#: Fills the places after a vector's last cell.
NO_CELL = 0xFFFFFFFF
#: Candidate cells for each copy: the rule leaves out most of them.
_PER_COPY = 4
#: Entries of the assignment counted at a time.
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
        See `nearest_cells`.

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
    """Return the number of vectors in each cell, copies included: int64 (n_cells,).

    Memory: the result twice, and 5 MiB.

    Parameters
    ----------
    cells : uint32 array, shape (n, copies)
        As `closure_cells` returns it; may be a mapped file.
    n_cells : int
    """
    sizes, step = np.zeros(n_cells, np.int64), max(1, _COUNTED // cells.shape[1])
    for first in range(0, len(cells), step):
        part = cells[first : first + step]
        sizes += np.bincount(part[part != NO_CELL], minlength=n_cells)
    return sizes


@kernel
def _squared(a: Any, b: Any) -> float:  # pragma: no cover - compiled
    total = 0.0
    for j in range(len(a)):
        total += (np.float64(a[j]) - b[j]) ** 2
    return total


@kernel
def _choose(rows: Any, centroids: Any, candidates: Any, reach: float, found: Any) -> None:  # pragma: no cover
    """Fill `found` from `candidates`, which are sorted by distance."""
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
