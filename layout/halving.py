"""Recursive halving of ranges of slots, down to pages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Level(NamedTuple):
    """Ranges of slots to be split in two on one level.

    Attributes
    ----------
    firsts, middles, lasts : int64 arrays, shape (n_ranges,)
        Slots `firsts` to `middles` are the left half, whole pages; `middles` to `lasts` the right half.
    """

    firsts: NDArray[np.int64]
    middles: NDArray[np.int64]
    lasts: NDArray[np.int64]

    def subset(self, chosen: NDArray[np.bool_] | slice) -> Level:
        """Return the chosen ranges."""
        return Level(self.firsts[chosen], self.middles[chosen], self.lasts[chosen])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of slots of each range."""
        return self.lasts - self.firsts


def next_level(bounds: NDArray[np.int64], nodes_per_page: int, cell_pages: int) -> Level:
    """Return the ranges between `bounds`, int64 (m + 1,), that have more than `cell_pages` pages."""
    pages = -(-np.diff(bounds) // nodes_per_page)
    middles = bounds[:-1] + pages // 2 * nodes_per_page
    return Level(bounds[:-1], middles, bounds[1:]).subset(pages > cell_pages)


def split_at(bounds: NDArray[np.int64], level: Level) -> NDArray[np.int64]:
    """Return `bounds` with the middles of `level` among them."""
    return np.sort(np.concatenate([bounds, level.middles]))
