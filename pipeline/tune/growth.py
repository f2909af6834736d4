"""Growth of page reads from sample to sample, extrapolated to all vectors.

A search visits about log n vertices, so reads at equal recall might grow by as many with each doubling of n. But with n
neighbours move together, and codes tell them from others less and less: then the list that a recall takes grows, too,
and reads rather grow by the same factor with each doubling. Both are extrapolated from the growth between the smallest
and the largest sample, and the middle is taken. Values that fall are extrapolated by the factor alone: as many fewer
with each doubling come to less than nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.bootstrap import Interval, percentiles
from indexmill.pipeline.tune.curve import AtRecall

#: Draws of where between the two laws growth lies are the same for every candidate.
_SEED = 1


@dataclass(frozen=True)
class Outlook:
    """Page reads of more vectors than were searched.

    Attributes
    ----------
    reads : float
        A query, at the target recall; infinite where the samples do not reach it.
    draws : float64 array, shape (draws,)
        The same in each draw of the bootstrap, somewhere between the two laws; other draws of the sample, of the order
        of insertion or of the codebook are not in it.
    """

    reads: float
    draws: NDArray[np.float64]

    def interval(self) -> Interval:
        """Return the 95% interval of the reads, over queries and between the two laws."""
        return percentiles(self.draws)


@dataclass(frozen=True)
class Growth:
    """Reads of a candidate at the target, of the reporting half of the queries.

    Attributes
    ----------
    reads : tuple of float
        On each sample. Infinite where the target is not reached.
    interval : Interval
        Of those on the largest sample, 95% over queries.
    outlook : Outlook
        For all vectors.
    """

    reads: tuple[float, ...]
    interval: Interval
    outlook: Outlook


def predict(sizes: Sequence[int], found: Sequence[AtRecall], n: int) -> Outlook:
    """Predict the reads of `n` vectors from the reads `found` in samples of ascending `sizes`."""
    reads = np.array([at.reads for at in found])
    drawn = np.stack([at.draws for at in found])
    share = np.random.default_rng(_SEED).uniform(0, 1, drawn.shape[1])
    return Outlook(float(extrapolated(sizes, reads, n)), np.asarray(extrapolated(sizes, drawn, n, share)))


def list_size_of(sizes: Sequence[int], lists: Sequence[float], n: int, least: float) -> int:
    """Return the list size for `n` vectors by that of each sample, but no less than `least`; 0 if it is not known."""
    there = max(float(extrapolated(sizes, np.array(lists), n)), least)
    return math.ceil(there) if math.isfinite(there) else 0


def extrapolated(
    sizes: Sequence[int], values: NDArray[np.float64], n: int, share: NDArray[np.float64] | float = 0.5
) -> Any:
    """Return `values` extrapolated to `n`, growing as between the smallest size and the largest.

    Parameters
    ----------
    values : float64 array, shape (len(sizes), ...), positive
    share : float or array, shape (...)
        0: as many with each doubling; 1: the same factor, as always where values fall.

    Returns
    -------
    float64 array, shape (...)
        Positive; infinite where one of those two values is.
    """
    before, last = values[0], values[-1]
    steps = np.log(n / sizes[-1]) / np.log(sizes[-1] / sizes[0])
    with np.errstate(invalid="ignore"):
        by_factor = last * (last / before) ** steps
        by_number = np.where(last < before, by_factor, last + steps * (last - before))
        values_at_n = (1 - share) * by_number + share * by_factor
    return np.where(np.isfinite(before) & np.isfinite(last), values_at_n, np.inf)
