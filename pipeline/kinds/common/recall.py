"""Recall judged by distance, with its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Relative slack when a found distance is compared with the k-th true one: float32 rounding of either.
_SLACK = 1e-5


@dataclass(frozen=True)
class Recall:
    """Mean recall over queries and its 95% interval (normal approximation over queries, cut to [0, 1])."""

    mean: float
    low: float
    high: float

    def facts(self) -> dict[str, float]:
        """Return the three as certificates and reports name them."""
        return {
            "recall": round(self.mean, 6),
            "recall_low": round(self.low, 6),
            "recall_high": round(self.high, 6),
        }


def recall_by_distance(found: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    """Return each query's recall@k.

    Parameters
    ----------
    found : float array, shape (n_queries, k)
        Squared distances of what was returned; NaN where nothing was.
    truth : float array, shape (n_queries, k)
        Squared distances of the true neighbours, ascending.

    Returns
    -------
    float64 array, shape (n_queries,)
        Share of results no farther than the k-th true neighbour, so that ties count as found whichever was
        returned.
    """
    hits: NDArray[np.float64] = within(found, truth[:, -1]).mean(axis=1)
    return hits


def within(found: NDArray[Any], kth: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which squared distances of `found`, (n_queries, m), NaN for none, are within `kth`, (n_queries,)."""
    worst = kth[:, None].astype(np.float64)
    allowed = worst + np.maximum(np.abs(worst), 1e-12) * _SLACK
    with np.errstate(invalid="ignore"):
        near: NDArray[np.bool_] = found.astype(np.float64) <= allowed
    return near


def mean_recall(recalls: NDArray[np.float64]) -> Recall:
    """Return the mean of per-query recalls, shape (n_queries,), with its interval."""
    mean = float(recalls.mean())
    n = len(recalls)
    spread = 1.96 * float(recalls.std(ddof=1)) / np.sqrt(n) if n > 1 else 1.0
    if spread == 0:  # all alike: the rule of three bounds what n queries did not show
        spread = min(1.0, 3 / n)
    return Recall(mean, max(0.0, mean - spread), min(1.0, mean + spread))
