"""The cut of the cells of a carving into as few regions as fit an allowance, and its forecast from a sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.nearest.points import Points
from indexmill.builders.partition.build import neighbours_a_leaf
from indexmill.builders.partition.carve import copies_of, counts_of
from indexmill.builders.partition.regions import Crossings, cells_in_order
from indexmill.pipeline.kinds.graph.regions.memory import Allowance, Expected, leaves_bytes, region_bytes

#: Halvings of the memory that evens out the regions.
_HALVINGS = 8
#: Fewest vectors of a sample for each leader.
_OF_A_LEADER = 8


class Cut:
    """The cut of cells within an allowance.

    Parameters
    ----------
    crossings : Crossings
        Of all vectors.
    allowance : Allowance

    Attributes
    ----------
    n : int
        Vectors.
    found : int
        Neighbours of a vertex found in each of its leaves.
    """

    def __init__(self, crossings: Crossings, allowance: Allowance) -> None:
        self.crossings, self.allowance, self.n = crossings, allowance, crossings.n_vectors
        sizes = crossings.sizes
        copies = [copies_of([size], self.n, allowance.fanouts) for size in sizes.tolist()]
        self.found = neighbours_a_leaf(allowance.max_degree, sum(copies) / self.n, allowance.saturate)
        self._in_cells = [0, *np.cumsum(sizes).tolist()]
        self._copies = [0, *np.cumsum(copies).tolist()]

    def needs(self, members: int, first: int, last: int) -> int:
        """Return the bytes of a region of `members` vectors, in the cells from position `first` to `last`."""
        in_cells, copies = (sums[last] - sums[first] for sums in (self._in_cells, self._copies))
        leaves = leaves_bytes(members, in_cells, copies, self.allowance, self.found)
        return max(leaves, region_bytes(self.n, members, self.allowance))

    def evenly(self) -> tuple[list[int], list[int]] | None:
        """Cut the cells into as few regions as the allowance permits, then about as evenly as so many can be.

        See `Crossings.cut`.
        """
        low, high = 0, self.allowance.bytes
        best = self.crossings.cut(self.needs, high)
        if best is None:
            return None
        for _ in range(_HALVINGS):
            middle = (low + high) // 2
            tried = self.crossings.cut(self.needs, middle)
            if tried is None or len(tried[1]) > len(best[1]):
                low = middle
            else:
                best, high = tried, middle
        return best


class SampledCells:
    """The cells of a carving of `n` vectors as a sample of them foretells: how many vectors any of them share.

    Parameters
    ----------
    rows : uint8, float16 or float32 array, shape (m, dim)
        The sample, in random order; the first rows are leaders, the others stand for all vectors.
    n : int
    fanouts : (int, int)
        See `Allowance`.
    """

    def __init__(self, rows: NDArray[Any], n: int, fanouts: tuple[int, int]) -> None:
        self._leaders, self._fanout = counts_of(n, fanouts)
        leaders, others = rows[: self._leaders], rows[self._leaders :]
        labels = Points(leaders, coded_for=self._fanout).nearest(others, self._fanout).astype(np.uint16)
        times = n / len(others)
        sizes = np.rint(np.bincount(labels.ravel(), minlength=len(leaders)) * times).astype(np.int64)
        cells, positions = cells_in_order(leaders, sizes)
        self._crossings = Crossings(positions[cells], len(positions))
        self._crossings.add(labels)
        self._crossings.grow(times)
        self._found: dict[Allowance, Expected | None] = {}

    def expected(self, allowance: Allowance) -> Expected | None:
        """Return the cut into regions that fit an allowance; None where a single cell does not."""
        if allowance not in self._found:
            self._found[allowance] = self._cut(allowance)
        return self._found[allowance]

    def _cut(self, allowance: Allowance) -> Expected | None:
        cut = Cut(self._crossings, allowance)
        found = cut.evenly()
        if found is None:
            return None
        bounds, members = found
        in_cells = np.add.reduceat(self._crossings.sizes, bounds[:-1])
        times = sum(members) / cut.n
        return Expected(self._leaders, self._fanout, len(members), max(members), times, int(in_cells.max()))


def sample_size(n: int, fanouts: tuple[int, int]) -> int:
    """Return the fewest vectors that foretell the cells of `n`."""
    return (1 + _OF_A_LEADER) * counts_of(n, fanouts)[0]
