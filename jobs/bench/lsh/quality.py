"""Quality of the results of hash tables: the overall ratio (E2LSH on storage, section 3.2) and recall."""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.jobs.bench.common.dataset import DISTANCE_TOLERANCE

#: Standard errors to either side of a mean that hold it in 95 of 100 samples.
_NORMAL_95 = 1.96
#: Queries whose found vectors are compared at once.
_BLOCK = 256


def found_distances(rows: Any, base: Any, queries: Any) -> Any:
    """Return ascending distances of found rows, int (n_queries, k), infinite where a row is -1: nothing was found."""
    distances = np.empty(rows.shape)
    for at in range(0, len(rows), _BLOCK):
        part = rows[at : at + _BLOCK]
        differences = base[np.maximum(part, 0)].astype(np.float64) - queries[at : at + _BLOCK, None, :]
        distances[at : at + _BLOCK] = np.where(part < 0, np.inf, np.sqrt((differences**2).sum(axis=2)))
    return np.sort(distances, axis=1)


def overall_ratios(found: Any, truth: Any) -> Any:
    """Return (1/k) sum of |o_i, q| / |o*_i, q| of each query; both arrays hold distances, (n_queries, k), ascending.

    A true distance of 0 counts as 1 where it was found; where it was not, the query has no ratio and is NaN. A
    neighbour that was not found at all counts with the ratio of the last one that was; a query without any is NaN.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where((truth == 0) & (found == 0), 1.0, found / truth)
    lost = (truth == 0) & (found > 0) & np.isfinite(found)
    there = np.isfinite(found)
    last = np.maximum(there.sum(axis=1) - 1, 0)
    filled = np.where(there, ratios, np.take_along_axis(ratios, last[:, None], axis=1))
    means = filled.mean(axis=1)
    means[lost.any(axis=1) | ~there[:, 0]] = np.nan
    return means


def judge(rows: Any, base: Any, queries: Any, truth_squared: Any) -> dict[str, float]:
    """Return ``ratio`` with its 95% interval, ``skipped`` and ``short`` queries, and ``recall`` of the k = rows' width.

    Recall counts what is no farther than the k-th true neighbour (`dataset.count_hits`).
    """
    k = rows.shape[1]
    truth = np.sqrt(truth_squared[:, :k].astype(np.float64))
    found = found_distances(rows, base, queries)
    ratios = overall_ratios(found, truth)
    counted = ratios[~np.isnan(ratios)]
    mean = float(counted.mean())
    error = _NORMAL_95 * float(counted.std(ddof=1)) / len(counted) ** 0.5
    within = found <= truth[:, -1:] * (1 + DISTANCE_TOLERANCE)
    return {
        "ratio": mean,
        "ratio_low": max(1.0, mean - error),
        "ratio_high": mean + error,
        "skipped": int(np.isnan(ratios).sum()),
        "short": int((rows < 0).any(axis=1).sum()),
        "recall": float(within.mean()),
    }
