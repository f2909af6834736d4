"""Figures at a recall with their 95% intervals: over queries by bootstrap, over rounds by their spread.

A cost at equal recall is uncertain twice: in the cost and in the recall that says where to read it. So whole queries
are drawn again, with their right answers and their costs for all list sizes, and the figure is computed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import RECALLS, Round, Row, at_recalls, ratio, summaries, value_at
from indexmill.jobs.bench.common.dataset import K

DRAWS = 500
SEED = 1
#: Share of the draws that must reach the recall for an interval to be told.
_LEAST_REACHED = 0.95

#: A figure for the record: {"value", "low", "high"}; None where the recall was not reached.
Figure = dict[str, float | None]


@dataclass(frozen=True)
class Curve:
    """Hits and costs of each query with each list size, in one or more rounds.

    Attributes
    ----------
    sizes : list of int
        L, ascending.
    hits : int array, shape (n_sizes, n_rounds, n_queries)
        Right answers of K.
    costs : float array, shape (n_sizes, n_rounds, n_queries)
    """

    sizes: list[int]
    hits: Any
    costs: Any

    @property
    def n_queries(self) -> int:
        """Queries of a round."""
        return int(self.hits.shape[-1])

    def at(self, recall: float, chosen: Any) -> float | None:
        """Mean cost of the `chosen` queries at `recall`."""
        flat = (len(self.sizes), -1)
        recalls = self.hits[:, :, chosen].reshape(flat).mean(axis=1) / K
        costs = self.costs[:, :, chosen].reshape(flat).mean(axis=1)
        rows = [
            {"L": size, "recall": found, "cost": cost}
            for size, found, cost in zip(self.sizes, recalls, costs, strict=True)
        ]
        return value_at(rows, "cost", recall)


def curve(rounds: Sequence[Sequence[Row]], name: str) -> Curve:
    """Take the hits and the cost `name` of each query out of rows: one list of rows, by L, for each round."""
    sizes = [row["L"] for row in rounds[0]]
    hits, costs = (
        np.array([[rows[i]["queries"][key] for rows in rounds] for i in range(len(sizes))])
        for key in ("hits", name)
    )
    return Curve(sizes, hits, costs)


def figure_at(found: Curve, recall: float) -> Figure | None:
    """Return the mean cost at `recall` with its 95% interval over queries."""
    return _with_interval(lambda chosen: found.at(recall, chosen), found.n_queries)


def ratio_at(a: Curve, b: Curve, recall: float) -> Figure | None:
    """Return the ratio of two mean costs at `recall` with its 95% interval over the queries, which both share."""
    return _with_interval(lambda chosen: ratio(a.at(recall, chosen), b.at(recall, chosen)), a.n_queries)


def _with_interval(figure: Callable[[Any], float | None], n_queries: int) -> Figure | None:
    value = figure(np.arange(n_queries))
    if value is None:
        return None
    random = np.random.default_rng(SEED)
    drawn = [figure(random.integers(0, n_queries, n_queries)) for _ in range(DRAWS)]
    reached = [one for one in drawn if one is not None]
    if len(reached) < _LEAST_REACHED * DRAWS:
        return {"value": value, "low": None, "high": None}
    low, high = np.percentile(reached, [2.5, 97.5])
    return {"value": value, "low": float(low), "high": float(high)}


def mean_of(values: Any) -> Figure:
    """Return the mean of one value a query with its 95% interval; `values` of shape (n_queries,)."""
    found = _with_interval(lambda chosen: float(values[chosen].mean()), len(values))
    assert found is not None
    return found


def ratio_of(a: Any, b: Any) -> Figure | None:
    """Return the ratio of the means of two values a query with its 95% interval over the queries, which both share.

    Parameters
    ----------
    a, b : arrays, shape (n_queries,)
    """
    return _with_interval(lambda chosen: ratio(float(a[chosen].mean()), float(b[chosen].mean())), len(a))


def over_rounds(values: Sequence[float | None]) -> Figure | None:
    """Return the median of several rounds with the least and the greatest; None unless all have a value."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return None
    return {"value": median(known), "low": min(known), "high": max(known)}


def medians_at(
    rounds: Sequence[Round], name: str, cost: str, recalls: Sequence[float] = RECALLS
) -> dict[str, Figure | None]:
    """Return a cost of the search called `name` at each recall, over rounds."""
    return at_recalls(lambda at: over_rounds([value_at(done[name], cost, at) for done in rounds]), recalls)


def ratios_at(
    rounds: Sequence[Round], a: str, b: str, cost: str, recalls: Sequence[float] = RECALLS, of: str = "recall"
) -> dict[str, Figure | None]:
    """Return the ratio of two searches' costs in the same round at each recall, over rounds."""

    def in_round(done: Round, at: float) -> float | None:
        return ratio(value_at(done[a], cost, at, of), value_at(done[b], cost, at, of))

    return at_recalls(lambda at: over_rounds([in_round(done, at) for done in rounds]), recalls)


def short(rounds: Sequence[Round]) -> list[Round]:
    """Return rounds for the record; see `summaries`."""
    return [{name: summaries(rows) for name, rows in done.items()} for done in rounds]


def figures_at(found: Curve) -> dict[str, Figure | None]:
    """Return the mean cost at each of `RECALLS` with its intervals over queries."""
    return at_recalls(lambda at: figure_at(found, at))


def curve_ratios(a: Curve, b: Curve) -> dict[str, Figure | None]:
    """Return the ratio of two mean costs at each of `RECALLS` with its intervals over queries."""
    return at_recalls(lambda at: ratio_at(a, b, at))
