"""One point of a comparison, query by query: all indexes at list sizes that give the same recall."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.jobs.compare.costs import compare_rows, cost_at_recall
from indexmill.jobs.compare.measure import Measurement
from indexmill.pipeline.bootstrap import mean_interval

#: Recalls at which queries are looked at one by one; the first that all indexes cross.
PREFERRED = (0.95, 0.90, 0.98)
#: Bars of a histogram at most.
MOST_BARS = 36
#: Quantiles of latency that are kept.
QUANTILES = (*(i / 50 for i in range(50)), 0.99, 0.995, 0.999, 1.0)


@dataclass(frozen=True)
class Point:
    """A policy, and the list size with which each index reaches a recall with it.

    ``recall`` is None where the curves have none of the recalls in common; sizes are then the largest measured.
    """

    policy: str
    recall: float | None
    sizes: dict[str, int]


def choose_point(rows: Sequence[dict[str, Any]]) -> Point:
    """Choose the recall of `PREFERRED` that all indexes cross, and the policy that reads the fewest pages there."""
    own = [row for row in rows if not row["again"]]
    for target in PREFERRED:
        lines = compare_rows(own, [target])
        policies = {line["policy"] for line in lines}
        policies -= {
            line["policy"] for line in lines if line["pages_read"] is None or line["pages_read_bound"]
        }
        if not policies:
            continue
        best = min(
            (line for line in lines if line["policy"] in policies), key=lambda line: line["pages_read"]
        )
        curves = [row for row in own if row["policy"] == best["policy"]]
        names = dict.fromkeys(row["index"] for row in curves)
        return Point(
            best["policy"],
            target,
            {name: size_at([r for r in curves if r["index"] == name], target) for name in names},
        )
    largest = int(max(row["L"] for row in own))
    return Point(own[-1]["policy"], None, {row["index"]: largest for row in own})


def size_at(curve: Sequence[dict[str, Any]], target: float) -> int:
    """Smallest list size with a recall of `target`, were recall linear between the rows of `curve`."""
    size = cost_at_recall(curve, "L", target).value
    if size is None:
        raise ValueError(f"the curve does not reach {target}")
    return math.ceil(size)


def describe(point: Point, measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Tell of each index's queries at `point`, and of their differences to the first index's.

    Parameters
    ----------
    measurements : of all indexes and the A/A run, the reference first
    """
    pages = [m.counter("pages_read") for m in measurements]
    latencies = [m.counter("latency_us") for m in measurements]
    edges = bin_edges(np.concatenate(pages))
    return {
        "policy": point.policy,
        "recall": point.recall,
        "rows": [m.row for m in measurements],
        "pages_read": {
            "edges": edges.tolist(),
            "counts": {m.row["index"]: _counts(p, edges) for m, p in zip(measurements, pages, strict=True)},
        },
        "latency_us": {
            "shares": list(QUANTILES),
            "quantiles": {
                m.row["index"]: np.quantile(of, QUANTILES).tolist()
                for m, of in zip(measurements, latencies, strict=True)
            },
        },
        "paired": [
            {"index": m.row["index"], "again": m.row["again"], "cost": cost, **paired(of[0], values)}
            for cost, of in (("pages_read", pages), ("latency_us", latencies))
            for m, values in zip(measurements[1:], of[1:], strict=True)
        ],
    }


def paired(base: NDArray[np.float64], values: NDArray[np.float64]) -> dict[str, Any]:
    """Differences ``values - base`` of the same queries, shape (n_queries,): mean, interval, shares, histogram."""
    differences = values - base
    low, high = mean_interval(differences)
    edges = bin_edges(differences)
    return {
        "base_mean": float(base.mean()),
        "mean": float(values.mean()),
        "difference": float(differences.mean()),
        "difference_low": low,
        "difference_high": high,
        "median_difference": float(np.median(differences)),
        "less": float((differences < 0).mean()),
        "equal": float((differences == 0).mean()),
        "more": float((differences > 0).mean()),
        "edges": edges.tolist(),
        "counts": _counts(differences, edges),
    }


def bin_edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Edges of at most `MOST_BARS` bars of one round width over `values`; a bar takes in its left edge.

    The thousandth largest and smallest values are all in the outermost bars, so that one outlier does not press the
    others into one bar.
    """
    low, high = np.quantile(values, [0.001, 0.999])
    width = round_up((high - low) / (MOST_BARS - 2))
    first = math.floor(low / width)
    edges: NDArray[np.float64] = width * np.arange(first, math.floor(high / width) + 2, dtype=np.float64)
    return edges


def round_up(width: float) -> float:
    """Smallest of 1, 2, 5, 10, 20, 50, ... that is at least `width`."""
    if width <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(width))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= width))


def _counts(values: NDArray[np.float64], edges: NDArray[np.float64]) -> list[int]:
    bars = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    counts: list[int] = np.bincount(bars, minlength=len(edges) - 1).tolist()
    return counts
