"""Bootstrap intervals over queries: of costs at equal recall, and of paired differences.

Queries are drawn anew with replacement, the same draw for all indexes, so that what makes a query hard falls on both
sides of a ratio. Each draw has its own recall curve and crosses the recall compared where that curve does: the interval
knows that recall, too, was measured on these queries only. Times of queries that ran together are not independent, so
these intervals of times are too narrow; the A/A run (`indexmill.jobs.compare.noise`) has what they miss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexmill.jobs.compare.measure import Measurement
from indexmill.pipeline.bootstrap import DRAWS, Interval, crossing, draws, percentiles

#: Costs of single queries; their means are compared.
QUERY_COSTS = ("pages_read", "latency_us_mean")


@dataclass(frozen=True)
class Curve:
    """Recall and cost of each query along the list sizes of one index and policy.

    Attributes
    ----------
    recalls : float32 array, shape (n_queries, n_sizes)
        By ascending list size.
    costs : dict of float32 arrays, shape (n_queries, n_sizes)
    """

    recalls: NDArray[np.float32]
    costs: dict[str, NDArray[np.float32]]


def curve_of(measurements: Sequence[Measurement]) -> Curve:
    """Stack the queries of one index's measurements, in ascending list size."""
    columns = {
        cost: [m.counter(cost.removesuffix("_mean")).astype(np.float32) for m in measurements]
        for cost in QUERY_COSTS
    }
    return Curve(
        np.column_stack([m.recalls for m in measurements]).astype(np.float32),
        {cost: np.column_stack(values) for cost, values in columns.items()},
    )


def intervals_at(
    curves: Sequence[Curve], targets: Sequence[float], count: int = DRAWS
) -> list[list[dict[str, Interval]]]:
    """Give 95% percentile intervals of costs at equal recall and of their ratios to the first curve.

    Parameters
    ----------
    curves : sequence of Curve, of the same queries; the first is the reference

    Returns
    -------
    list (curves) of list (targets) of dict
        ``pages_read``, ``latency_us_mean`` and the same with ``_ratio``: low and high. The low end of a cost is None
        where more than one draw in forty starts above the recall, the high end where more than one in forty never
        reaches it; both ends of a ratio are None where more than one draw in forty is either on either curve.
    """
    values: dict[str, list[NDArray[np.float64]]] = {cost: [] for cost in QUERY_COSTS}
    for weights in draws(len(curves[0].recalls), count):
        recalls = [weights @ curve.recalls for curve in curves]
        for cost in QUERY_COSTS:
            means = [weights @ curve.costs[cost] for curve in curves]
            values[cost].append(
                np.array([[crossing(r, c, t) for t in targets] for r, c in zip(recalls, means, strict=True)])
            )
    drawn = {cost: np.concatenate(blocks, axis=2) for cost, blocks in values.items()}  # curve, target, draw
    return [
        [
            {
                **{cost: percentiles(drawn[cost][c, t]) for cost in QUERY_COSTS},
                **{
                    f"{cost}_ratio": percentiles(_ratios(drawn[cost][c, t], drawn[cost][0, t]))
                    for cost in QUERY_COSTS
                },
            }
            for t in range(len(targets))
        ]
        for c in range(len(curves))
    ]


def _ratios(costs: NDArray[np.float64], base: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide draw by draw; NaN where one of the two is only known on one side."""
    known = np.isfinite(costs) & np.isfinite(base) & (base > 0)
    ratios = np.full(len(costs), np.nan)
    np.divide(costs, base, out=ratios, where=known)
    return ratios
