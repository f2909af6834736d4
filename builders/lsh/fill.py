"""How many blocks the buckets of an LSH table will take, from how a sample of the vectors fills it.

Buckets are unlike: near the middle of the data some hold a hundred times the mean, and of a wide radius a few hold
everything. How many of `m` sampled vectors fall into a bucket is Poisson distributed about its own rate; the rates'
distribution is what makes the counts of all buckets most likely (Kiefer and Wolfowitz's estimate for mixtures, by
expectation maximisation over a grid). With it any number of vectors can be filled in.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln

#: Rates of the grid, and rounds of expectation maximisation.
_RATES, _ROUNDS = 80, 300
#: The rate of buckets that stay empty, and the least of the others, in vectors when all are there.
_NEVER, _LEAST = 1e-9, 2.0
#: Beyond so many full blocks, a bucket ends anywhere in its last one.
_MANY = 50


def expected_blocks(counts: NDArray[np.int64], growth: float, capacity: int) -> float:
    """Return about how many blocks the buckets take when `growth` times as many vectors are in them.

    Parameters
    ----------
    counts : int array, shape (n_buckets,)
        Sampled vectors in each bucket, empty ones included.
    growth : float
        1 or more.
    capacity : int
        Entries of a block.
    """
    if growth <= 1:
        return float((-(-counts // capacity)).sum())
    values, times = np.unique(counts, return_counts=True)
    rates = np.append(_NEVER, np.geomspace(_LEAST / growth, max(float(values[-1]), 1.0), _RATES))
    weights = _mixture(values, times / times.sum(), rates)
    return float(len(counts) * (weights @ _blocks(rates * growth, capacity)))


def _mixture(
    values: NDArray[np.int64], shares: NDArray[np.float64], rates: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the weight of each rate that makes `values`, of which there are these `shares`, most likely."""
    logs = values[:, None] * np.log(rates) - rates - gammaln(values + 1.0)[:, None]
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))  # a factor for each value changes no weight
    weights = np.full(len(rates), 1 / len(rates))
    for _ in range(_ROUNDS):
        joint = likely * weights
        weights = shares @ (joint / joint.sum(axis=1, keepdims=True))
    return weights


def _blocks(means: NDArray[np.float64], capacity: int) -> NDArray[np.float64]:
    """Return the mean of ``ceil(X / capacity)``, X Poisson distributed about each of `means`."""
    ends = capacity * np.arange(_MANY + 1)
    exact = gammainc(ends + 1.0, means[:, None]).sum(axis=1)  # sum over j of P(X > j capacity)
    return np.where(means > capacity * (_MANY - 10), means / capacity + 0.5, exact)
