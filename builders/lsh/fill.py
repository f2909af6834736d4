"""Number of blocks that the buckets of an LSH table will fill, estimated from a sample of the vectors.

Buckets differ greatly: near the middle of the data some hold a hundred times the mean, and at a wide radius a few hold
everything. The number of sampled vectors in a bucket is Poisson distributed with a rate of its own. The distribution of
rates is estimated by maximum likelihood from the counts of all buckets (Kiefer and Wolfowitz's estimate for mixtures,
by expectation maximization over a grid). It predicts the buckets for any number of vectors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln

#: Rates in the grid, and rounds of expectation maximization.
_RATES, _ROUNDS = 80, 300
#: Rate of buckets that stay empty, and least rate of the others, in vectors of the complete table.
_NEVER, _LEAST = 1e-9, 2.0
#: Beyond this number of blocks, a bucket ends anywhere in its last block.
_MANY = 50


def expected_blocks(counts: NDArray[np.int64], growth: float, capacity: int) -> float:
    """Return the expected number of blocks once the buckets hold `growth` times as many vectors.

    Parameters
    ----------
    counts : int array, shape (n_buckets,)
        Sampled vectors in each bucket, including empty buckets.
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
    """Return the maximum likelihood weight of each rate, for `values` that occur with these `shares`."""
    logs = values[:, None] * np.log(rates) - rates - gammaln(values + 1.0)[:, None]
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))  # a factor for each value changes no weight
    weights = np.full(len(rates), 1 / len(rates))
    for _ in range(_ROUNDS):
        joint = likely * weights
        weights = shares @ (joint / joint.sum(axis=1, keepdims=True))
    return weights


def _blocks(means: NDArray[np.float64], capacity: int) -> NDArray[np.float64]:
    """Return the mean of ``ceil(X / capacity)`` for X Poisson distributed with each of `means`."""
    ends = capacity * np.arange(_MANY + 1)
    exact = gammainc(ends + 1.0, means[:, None]).sum(axis=1)  # sum over j of P(X > j capacity)
    return np.where(means > capacity * (_MANY - 10), means / capacity + 0.5, exact)
