"""Bootstrap over queries: they are drawn anew with replacement, and a statistic of each draw tells how sure it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Draws of an interval: the ends of a 95% interval then have a standard error of about 3% of its width.
DRAWS = 2000
#: Share of draws outside a 95% interval, on either side.
TAIL = 0.025
#: Numbers of one block of draws: memory stays below 100 MB.
_BLOCK_NUMBERS = 4_000_000
_SEED = 1


def draws(n_queries: int, count: int = DRAWS) -> Iterator[NDArray[np.float32]]:
    """Yield blocks of weights, float32 (block, n_queries), each row a draw; every row sums to one.

    The same for every call, so that whatever is compared is compared on the same draws.
    """
    for counts in _counts(n_queries, count):
        yield counts.astype(np.float32) / np.float32(n_queries)


def mean_interval(values: NDArray[Any], count: int = DRAWS) -> tuple[float, float]:
    """Give the 95% percentile interval of the mean of `values`, shape (n_queries,): costs, or paired differences.

    Sums are of float64: of whole numbers they are exact, whatever the order in which a machine adds.
    """
    column = values.astype(np.float64)
    sums = np.concatenate([counts.astype(np.float64) @ column for counts in _counts(len(column), count)])
    low, high = np.quantile(sums / len(column), [TAIL, 1 - TAIL])
    return float(low), float(high)


def _counts(n_queries: int, count: int) -> Iterator[NDArray[np.int64]]:
    """Yield blocks of draws, (block, n_queries): how often each query was drawn."""
    rng = np.random.default_rng(_SEED)
    block = max(1, min(count, _BLOCK_NUMBERS // n_queries))
    for first in range(0, count, block):
        rows = min(block, count - first)
        chosen = rng.integers(n_queries, size=(rows, n_queries))
        chosen += np.arange(rows)[:, None] * n_queries
        yield np.bincount(chosen.ravel(), minlength=rows * n_queries).reshape(rows, n_queries)
