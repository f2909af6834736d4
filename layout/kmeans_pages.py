"""Hierarchical balanced k-means: a page holds one small cluster (AIO-ANN; BBAnn, NeurIPS 2021).

A cluster is split in two, recursively, until it is a page. Splits are exactly balanced: in the direction from one mean
to the other, the vectors with the smallest projections go left, as many as fit half of the pages. Then the means are
computed again, a few times. This is Lloyd's algorithm for two centres with given sizes, because the difference of the
squared distances to two centres is a projection.

Deviations: both papers split into many clusters at once, and balance them by a penalty or by splitting large clusters
again. Splitting in two with exact sizes needs neither, and fills every page except the last.

Time: O(n dim log(n / b)), on threads. Memory: 13 bytes a vertex. Vectors are not copied, and are read in ascending
order while clusters are large, so they may be a mapped file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.halving import next_level, split_at
from indexmill.layout.order import Given, Order, OrderMemory, Work, need_points
from indexmill.reader.threads import run_blocks

#: Steps of a split; further steps reduce distances within pages by less than 0.5%.
_STEPS = 6
#: Least vectors of a cluster that all threads split together; smaller clusters are split in parallel.
LARGE = 1 << 16
#: Vectors of a task in a large cluster.
_BLOCK = 1 << 14
#: Tasks that the small clusters of a level are divided into.
_RUNS = 64


@dataclass(frozen=True)
class KmeansPagesOrder(Order):
    """Hierarchical balanced k-means down to pages."""

    large: ClassVar[int] = LARGE
    uses_points = needs_points = True
    memory = OrderMemory(16)

    def arrange(self, given: Given) -> NDArray[np.uint32]:
        """See `layout.order.Order`. Once work is spent, clusters are not split further."""
        points = need_points(given.points, "kmeans-pages")
        return balanced_cells(points, given.nodes_per_page, 1, given.threads, given.work, self.large)[0]


def balanced_cells(
    points: NDArray[Any], nodes_per_page: int, cell_pages: int, threads: int, work: Work, large: int = LARGE
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Cluster vectors into cells of whole pages.

    Parameters
    ----------
    points : uint8 or float32 array, shape (n, dim)
    cell_pages : int
        Most pages of a cell; cells have more than half as many, if there are enough.
    large : int
        Least vectors of a cell that all threads split together.

    Returns
    -------
    order : uint32 array, shape (n,)
        Vertices cell by cell, ascending in each cell.
    bounds : int64 array, shape (n_cells + 1,)
        Bounds of the cells; the last cell may end within a page.
    """
    n, dim = points.shape
    order, bounds = np.arange(n, dtype=np.uint32), np.array([0, n], np.int64)
    keys, sides = np.empty(n, np.float32), np.empty(n, np.bool_)
    while len((level := next_level(bounds, nodes_per_page, cell_pages)).firsts):
        if not work.spend(int(level.sizes.sum()) * 2 * _STEPS * -(-dim // 16)):
            break
        is_large = level.sizes >= large
        for first, middle, last in zip(*level.subset(is_large), strict=True):
            split_in_two(
                points, order[first:last], middle - first, keys[first:last], sides[first:last], threads
            )
        small = level.subset(~is_large)

        def run(first: int, last: int) -> None:
            _split_small(points, order, *small.subset(slice(first, last)), keys, sides)  # noqa: B023

        run_blocks(run, len(small.firsts), -(-len(small.firsts) // _RUNS) or 1, threads)
        bounds = split_at(bounds, level)
    return order, bounds


def split_in_two(
    points: NDArray[Any], ids: NDArray[np.uint32], n_left: int, keys: Any, sides: Any, threads: int
) -> NDArray[np.float32]:
    """Move the `n_left` vertices of the left cluster to the front of `ids`; `keys` and `sides` are work space.

    Returns
    -------
    float32 array, shape (dim,)
        The direction from the left mean to the right mean.
    """
    n = len(ids)
    moments: Any = sum(run_blocks(lambda a, b: _moments(points, ids[a:b]), n, _BLOCK, threads))
    direction: NDArray[np.float32] = _widest(moments, n)
    for step in range(_STEPS):
        run_blocks(lambda a, b: project(points, ids[a:b], direction, keys[a:b]), n, _BLOCK, threads)  # noqa: B023
        if not _cut(keys, n_left, sides) and step:
            break
        right = sum(run_blocks(lambda a, b: _sum_right(points, ids[a:b], sides[a:b]), n, _BLOCK, threads))
        direction = _apart(moments[0], right, n_left, n)
    _part(ids, sides)
    return direction


@kernel
def _split_small(
    points: Any, order: Any, firsts: Any, middles: Any, lasts: Any, all_keys: Any, all_sides: Any
) -> None:  # pragma: no cover - compiled
    """Split clusters one after the other, as `split_in_two` does."""
    for g in range(firsts.size):
        first, last = firsts[g], lasts[g]
        ids, keys, sides = order[first:last], all_keys[first:last], all_sides[first:last]
        n_left = middles[g] - first
        moments = _moments(points, ids)
        direction = _widest(moments, ids.size)
        for step in range(_STEPS):
            project(points, ids, direction, keys)
            if not _cut(keys, n_left, sides) and step:
                break
            direction = _apart(moments[0], _sum_right(points, ids, sides), n_left, ids.size)
        _part(ids, sides)


@kernel
def _moments(points: Any, ids: Any) -> Any:  # pragma: no cover - compiled
    """Return the sums and the sums of squares of the components, float64 (2, dim)."""
    sums = np.zeros((2, points.shape[1]))
    for v in ids:
        for j in range(points.shape[1]):
            x = np.float64(points[v, j])
            sums[0, j] += x
            sums[1, j] += x * x
    return sums


@kernel
def _widest(moments: Any, n: int) -> Any:  # pragma: no cover - compiled
    """Return the axis of largest variance, float32 (dim,), as for the first cut of a k-d tree."""
    direction = np.zeros(moments.shape[1], np.float32)
    direction[np.argmax(moments[1] / n - (moments[0] / n) ** 2)] = 1
    return direction


@kernel(inline="always")
def product(points: Any, v: int, direction: Any, terms: Any) -> Any:  # pragma: no cover - compiled
    """Return the product of vector v and `direction`, summed by halves: the same bits on every machine.

    `terms` is work space, float32 (dim,).
    """
    for j in range(direction.size):
        terms[j] = direction[j] * np.float32(points[v, j])
    width: Any = direction.size
    while width > 1:
        half = (width + 1) // 2
        for j in range(width - half):
            terms[j] += terms[half + j]
        width = half
    return terms[0]


@kernel
def project(points: Any, ids: Any, direction: Any, keys: Any) -> None:  # pragma: no cover - compiled
    """Write the products of the vectors `ids` and `direction` to `keys`."""
    terms = np.empty(direction.size, np.float32)
    for i in range(ids.size):
        keys[i] = product(points, ids[i], direction, terms)


@kernel
def _cut(keys: Any, n_left: int, sides: Any) -> Any:  # pragma: no cover - compiled
    """Mark in `sides` all except the `n_left` smallest keys, ties by place; return whether a mark changed."""
    at = np.partition(keys, n_left)[n_left]
    equal = n_left - np.sum(keys < at)
    changed = False
    for i in range(keys.size):
        right = keys[i] > at
        if keys[i] == at:
            right = equal <= 0
            equal -= 1
        changed = changed or right != sides[i]
        sides[i] = right
    return changed


@kernel
def _sum_right(points: Any, ids: Any, sides: Any) -> Any:  # pragma: no cover - compiled
    """Return the sum of the vectors on the right, float64 (dim,)."""
    total = np.zeros(points.shape[1])
    for i in range(ids.size):
        if sides[i]:
            v = ids[i]
            for j in range(total.size):
                total[j] += points[v, j]
    return total


@kernel
def _apart(total: Any, right: Any, n_left: int, n: int) -> Any:  # pragma: no cover - compiled
    """Return the direction from the left mean to the right mean, float32 (dim,)."""
    return (right / (n - n_left) - (total - right) / n_left).astype(np.float32)


@kernel
def _part(ids: Any, sides: Any) -> None:  # pragma: no cover - compiled
    """Move the left side to the front; both sides keep their order."""
    right = ids[sides]
    n_left = ids.size - right.size
    filled = 0
    for i in range(ids.size):
        if not sides[i]:
            ids[filled] = ids[i]
            filled += 1
    ids[n_left:] = right
