"""How page reads grow from sample to sample, and what that comes to for all vectors.

A search visits about log n vertices, so reads at equal recall might grow by as many with each doubling of n. But with n
neighbours move together, and codes tell them from others less and less: then the list that a recall takes grows, too,
and reads rather grow by the same factor with each doubling. On vectors at hand the truth lay between the two (see
docs/guides/tune.md), so both are carried on from the two largest samples, and the middle is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.bootstrap import Interval, percentiles

#: Draws of where between the two laws growth lies are the same for every candidate.
_SEED = 1


@dataclass(frozen=True)
class Forecast:
    """Page reads of all vectors.

    Attributes
    ----------
    reads : float
        A query, at the target recall.
    interval : Interval
        95%: of the queries that were drawn, and of what lies between the two laws. Other draws of the sample, of the
        order of insertion or of the codebook are not in it.
    """

    reads: float
    interval: Interval


def foretell(sizes: list[int], reads: list[float], drawn: NDArray[np.float64], n: int) -> Forecast:
    """Return the reads of `n` vectors.

    Parameters
    ----------
    sizes : list of int
        Vectors of the samples, ascending, at least two.
    reads : list of float
        Infinite where the recall is not reached.
    drawn : float64 array, shape (len(sizes), draws)
        The same in each draw of the bootstrap.
    """
    return Forecast(float(carried_on(sizes, np.array(reads), n)), percentiles(possible(sizes, drawn, n)))


def carried_on(
    sizes: list[int], values: NDArray[np.float64], n: int, share: NDArray[np.float64] | float = 0.5
) -> Any:
    """Return what `values` come to at `n`, growing as between the two largest sizes.

    Parameters
    ----------
    values : float64 array, shape (len(sizes), ...), positive
    share : float or array, shape (...)
        0: as many with each doubling; 1: the same factor.

    Returns
    -------
    float64 array, shape (...)
        Infinite where one of the two values is.
    """
    before, last = values[-2], values[-1]
    steps = np.log(n / sizes[-1]) / np.log(sizes[-1] / sizes[-2])
    with np.errstate(invalid="ignore"):
        found = (1 - share) * (last + steps * (last - before)) + share * last * (last / before) ** steps
    return np.where(np.isfinite(before) & np.isfinite(last), found, np.inf)


def possible(sizes: list[int], drawn: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return what each draw comes to, shape (draws,), somewhere between the two laws."""
    share = np.random.default_rng(_SEED).uniform(0, 1, drawn.shape[1])
    return np.asarray(carried_on(sizes, drawn, n, share))
