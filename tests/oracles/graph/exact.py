"""Intervals of distances by codes, and the answer of a search that measures exactly what they leave open, in numpy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: As the reader has them (reader/core/src/graph/apart/interval.rs).
DEVIATIONS, SPARE = 4.0, 32


class Interval(NamedTuple):
    """Distances by codes are true ones + offset, give or take 2 * width * root + spread; products: width."""

    squared: bool
    width: float
    offset: float
    spread: float


def kept(k: int, list_size: int) -> int:
    """Results of the search among nodes that a search for k neighbours goes on with."""
    return max(2 * k + SPARE, list_size)


def interval(steps: NDArray[np.float32], query: NDArray[np.float32], metric: str) -> Interval:
    """Return the interval of codes with these steps, of the components of `query`."""
    variances = steps.astype(np.float64) ** 2 / 12
    if metric == "ip":
        along = float((variances * query.astype(np.float64) ** 2).sum())
        return Interval(False, DEVIATIONS * along**0.5, 0.0, 0.0)
    shares = np.clip(DEVIATIONS**2 / 3 - np.arange(len(variances)), 0, 1)
    width = float(3 * (np.sort(variances)[::-1] * shares).sum()) ** 0.5
    spread = float((steps.astype(np.float64) ** 4 / 180).sum())
    return Interval(True, width, float(variances.sum()), DEVIATIONS * spread**0.5)


def answer(
    by_codes: NDArray[np.float32],
    exact: NDArray[np.float32],
    slots: NDArray[np.int64],
    k: int,
    of: Interval,
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """Return slots and distances of the answer, nearest first, and the slots that are measured.

    Parameters
    ----------
    by_codes, exact : float32 array, shape (m,)
        Distances of results, ascending by the first.
    slots : int64 array, shape (m,)
    """
    if len(slots) <= k:
        return slots, by_codes, slots[:0]
    middle = by_codes.astype(np.float64) - of.offset
    if of.squared:
        low = np.sqrt(np.maximum(middle - of.spread + of.width**2, 0)) - of.width
        high = np.sqrt(np.maximum(middle + of.spread + of.width**2, 0)) + of.width
        least, largest = np.maximum(low, 0) ** 2, high**2
    else:
        least, largest = middle - of.width, middle + of.width
    least, largest = least.astype(np.float32), largest.astype(np.float32)
    inside, outside = largest < least[k], least > largest[k - 1]
    is_open = ~inside & ~outside
    distances = np.where(is_open, exact, by_codes)
    places = np.flatnonzero(~outside)
    best = places[np.lexsort((slots[places], distances[places]))][:k]
    return slots[best], distances[best], slots[is_open]
