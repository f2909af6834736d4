"""Borders of districts: sampled vectors are halved, and each half again, down to one cell for each district.

A half is split off as `layout.kmeans_pages` does it, by balanced k-means with two means. Its border is a plane between
the two means, where it divides the sample in the wanted shares. A vector goes down the tree of planes to its district,
so districts differ in size only as far as the sample differs from all vectors. Equal vectors share a district, however
many they are.

Time: O(dim log k) a vector for k districts. Memory: the sample, and 4 bytes a vector.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.kmeans_pages import product, project, split_in_two
from indexmill.reader.threads import run_blocks

#: Vectors of the sample: so many for each district, and at most so many in all.
_A_DISTRICT, _MOST_ROWS = 256, 1 << 18
#: Bytes of vectors that a thread divides at a time, at least one vector.
_BLOCK_BYTES = 1 << 20


class Borders(NamedTuple):
    """Planes that divide vectors into districts.

    Districts from `first` to `last` are divided at ``middle = (first + last) // 2``: vectors whose product with
    ``directions[middle - 1]`` is less than ``places[middle - 1]`` are in a district before `middle`.

    Attributes
    ----------
    directions : float32 array, shape (n_districts - 1, dim)
    places : float32 array, shape (n_districts - 1,)
    """

    directions: NDArray[np.float32]
    places: NDArray[np.float32]

    @property
    def n_districts(self) -> int:
        """Number of districts."""
        return len(self.places) + 1

    def districts_of(self, points: NDArray[Any], threads: int = 1) -> NDArray[np.uint32]:
        """Return the district of each of `points`, uint8 or float32 (m, dim): uint32 (m,)."""
        districts = np.empty(len(points), np.uint32)

        def divide(first: int, last: int) -> None:
            _divide(np.array(points[first:last]), self.directions, self.places, districts[first:last])

        block = max(1, _BLOCK_BYTES // (points.shape[1] * points.itemsize))
        run_blocks(divide, len(points), block, threads)
        return districts


def sampled_rows(n: int, n_districts: int) -> NDArray[np.int64]:
    """Return the rows that decide the borders of `n` vectors, evenly spaced; at least `n_districts` if `n` is."""
    m = min(n, max(n_districts, min(n_districts * _A_DISTRICT, _MOST_ROWS)))
    return np.arange(m, dtype=np.int64) * n // m


def fit_borders(sample: NDArray[Any], n_districts: int, threads: int = 1) -> Borders:
    """Return borders that divide a sample into districts of the same size, as nearly as ties allow.

    Parameters
    ----------
    sample : uint8 or float32 array, shape (m, dim)
        At least `n_districts` vectors.
    threads : int
        They do not change the borders.
    """
    directions = np.zeros((n_districts - 1, sample.shape[1]), np.float32)
    places = np.zeros(n_districts - 1, np.float32)
    keys, sides = np.empty(len(sample), np.float32), np.empty(len(sample), np.bool_)

    def divide(first: int, last: int, rows: NDArray[np.uint32]) -> None:
        if last - first == 1 or len(rows) < last - first:  # too few: every vector goes to the last one
            return
        middle, m = (first + last) // 2, len(rows)
        n_left = m * (middle - first) // (last - first)
        direction = split_in_two(sample, rows, n_left, keys[:m], sides[:m], threads)
        project(sample, rows, direction, keys[:m])
        place = _between(keys[:m], n_left)
        directions[middle - 1], places[middle - 1] = direction, place
        is_left = keys[:m] < place
        divide(first, middle, rows[is_left])
        divide(middle, last, rows[~is_left])

    divide(0, n_districts, np.arange(len(sample), dtype=np.uint32))
    return Borders(directions, places)


def _between(keys: NDArray[np.float32], n_left: int) -> np.float32:
    """Return a number greater than the `n_left` smallest keys, and no greater than the others, as far as ties allow."""
    parted = np.partition(keys, n_left)
    below, above = parted[:n_left].max(), parted[n_left]
    middle = np.float32((np.float64(below) + np.float64(above)) / 2)
    return middle if middle > below else above


@kernel
def _divide(points: Any, directions: Any, places: Any, districts: Any) -> None:  # pragma: no cover - compiled
    """Write the district of each vector."""
    terms = np.empty(points.shape[1], np.float32)
    for v in range(points.shape[0]):
        first, last = 0, places.size + 1
        while last - first > 1:
            middle = (first + last) // 2
            if product(points, v, directions[middle - 1], terms) < places[middle - 1]:
                last = middle
            else:
                first = middle
        districts[v] = first
