"""The overall ratio of found to true distances (Nakanishi et al., EDBT 2023, section 3.2), with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Standard errors of the mean to either side of it that hold it in 95 of 100 samples.
_NORMAL_95 = 1.96


@dataclass(frozen=True)
class OverallRatio:
    """Mean of (1/k) sum of |o_i, q| / |o*_i, q| over the queries, at least 1.

    Attributes
    ----------
    mean, low, high : float
        With its 95% interval; NaN where no query counts.
    skipped : int
        Queries with a true distance of 0 that was not found, which have no ratio.
    short : int
        Queries of which fewer than k were found; the mean is over those that were.
    """

    mean: float
    low: float
    high: float
    skipped: int
    short: int


def query_ratios(found: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    """Return the overall ratio of each query, float64 (n_queries,), of distances as `overall_ratio` takes them.

    NaN where nothing was found, and where a true distance of 0 was not.
    """
    there, ratios = ~np.isnan(found), _ratios(found, truth)
    counted = there.any(axis=1) & ~_lost(found, truth)
    means = np.full(len(found), np.nan)
    if counted.any():
        means[counted] = np.nanmean(ratios[counted], axis=1)
    return means


def overall_ratio(found: NDArray[Any], truth: NDArray[Any]) -> OverallRatio:
    """Return the overall ratio of distances, each shape (n_queries, k) and ascending, NaN where nothing was found.

    A true distance of 0 counts as 1 where it was found.
    """
    means = query_ratios(found, truth)
    means = means[~np.isnan(means)]
    means = means if len(means) else np.full(1, np.nan)
    error = _NORMAL_95 * float(means.std(ddof=1)) / len(means) ** 0.5 if len(means) > 1 else 0.0
    mean, short = float(means.mean()), int(np.isnan(found).any(axis=1).sum())
    return OverallRatio(mean, max(1.0, mean - error), mean + error, int(_lost(found, truth).sum()), short)


def _ratios(found: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: NDArray[np.float64] = np.where((truth == 0) & (found == 0), 1.0, found / truth)
    return ratios


def _lost(found: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which queries have a true distance of 0 that was not found."""
    lost: NDArray[np.bool_] = (~np.isnan(found) & (truth == 0) & (found > 0)).any(axis=1)
    return lost
