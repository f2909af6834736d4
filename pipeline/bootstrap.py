"""Bootstrap over queries: statistics of queries drawn anew with replacement tell how sure a statistic is."""

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
#: Low and high end; None for one that the draws do not tell.
Interval = tuple[float | None, float | None]


def draws(n_queries: int, count: int = DRAWS) -> Iterator[NDArray[np.float32]]:
    """Yield blocks of weights, float32 (block, n_queries), each row a draw; every row sums to one.

    The same for every call, so that whatever is compared is compared on the same draws.
    """
    for counts in _counts(n_queries, count):
        yield counts.astype(np.float32) / np.float32(n_queries)


def mean_interval(values: NDArray[Any], groups: NDArray[np.int64] | None = None) -> tuple[float, float]:
    """Give the 95% percentile interval of the mean of `values`, shape (n_queries,): costs, or paired differences.

    Sums are of float64: of whole numbers they are exact, whatever the order in which a machine adds.

    Parameters
    ----------
    groups : int64 array, shape (n_queries,), optional
        Number of the group of each value, such as that of equal queries (`same_rows`): a draw takes whole groups, so
        that what repeats does not narrow the interval. By default each value is a group.
    """
    groups = np.arange(len(values)) if groups is None else groups
    column, sizes = np.bincount(groups, values.astype(np.float64)), np.bincount(groups).astype(np.float64)
    drawn = (counts.astype(np.float64) for counts in _counts(len(sizes), DRAWS))
    means = np.concatenate([(counts @ column) / (counts @ sizes) for counts in drawn])
    low, high = np.quantile(means, [TAIL, 1 - TAIL])
    return float(low), float(high)


def same_rows(rows: NDArray[Any]) -> NDArray[np.int64]:
    """Return the group of equal `rows`, shape (q, dim), that each belongs to, numbered from 0: int64 (q,)."""
    groups: NDArray[np.int64] = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    return groups


def crossing(recalls: NDArray[Any], costs: NDArray[Any], target: float) -> NDArray[np.float64]:
    """Cost where each draw's curve first crosses `target`, linear in recall between two sizes.

    Parameters
    ----------
    recalls, costs : arrays, shape (n_draws, n_sizes)
        Means over the queries of a draw.

    Returns
    -------
    float64 array, shape (n_draws,)
        Minus infinity where the smallest size is above `target` already, so that the cost is at most that size's;
        infinity where no size reaches it.
    """
    reached = recalls >= target
    high = reached.argmax(axis=1)
    low = np.maximum(high - 1, 0)
    row = np.arange(len(recalls))
    span = recalls[row, high] - recalls[row, low]
    share = np.divide(target - recalls[row, low], span, out=np.zeros(len(recalls)), where=high > low)
    values = costs[row, low] + share * (costs[row, high] - costs[row, low])
    known = np.where(reached.any(axis=1), values.astype(np.float64), np.inf)
    return np.where(recalls[:, 0] > target, -np.inf, known)


def percentiles(values: NDArray[np.float64]) -> Interval:
    """Give the 2.5th and 97.5th percentile of draws, each the draw with one in forty beyond it.

    A draw that is infinite lies beyond all others on its side, one that is NaN beyond both ends; an end that is not
    finite then is None.
    """
    beyond, unknown = int(TAIL * len(values)), np.isnan(values)
    low = np.sort(np.where(unknown, -np.inf, values))[beyond]
    high = np.sort(np.where(unknown, np.inf, values))[-1 - beyond]
    return (float(low) if np.isfinite(low) else None, float(high) if np.isfinite(high) else None)


def _counts(n_queries: int, count: int) -> Iterator[NDArray[np.int64]]:
    """Yield blocks of draws, (block, n_queries): how often each query was drawn."""
    rng = np.random.default_rng(_SEED)
    block = max(1, min(count, _BLOCK_NUMBERS // n_queries))
    for first in range(0, count, block):
        rows = min(block, count - first)
        chosen = rng.integers(n_queries, size=(rows, n_queries))
        chosen += np.arange(rows)[:, None] * n_queries
        yield np.bincount(chosen.ravel(), minlength=rows * n_queries).reshape(rows, n_queries)
