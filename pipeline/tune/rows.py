"""Rows of what was tried, with the frontier and the one to take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from indexmill.pipeline.mill.progress import Progress, stage_progress
from indexmill.pipeline.tune.choice import Cost, frontier, recommended
from indexmill.pipeline.tune.prices import Prices
from indexmill.pipeline.tune.report import BuildRow
from indexmill.pipeline.tune.trials import Trials

C = TypeVar("C")
R = TypeVar("R", bound=BuildRow)


def rows_of(
    candidates: Sequence[C],
    trials: Trials[C, Any],
    prices: Prices[C],
    row_of: Callable[[C, Cost], R],
    max_reads: float | None,
    progress: Progress,
) -> tuple[tuple[R, ...], int | None]:
    """Choose among candidates that were tried on every sample; return a row of each, and the place of the one to take.

    Builds are planned of those on the frontier, and of the one to take.

    Parameters
    ----------
    row_of : callable
        Reports what was measured of a candidate, with its cost.
    """
    last = len(trials.levels) - 1
    tuned = [trials.outlook(one, last, prices.source.n_vectors) for one in candidates]
    costs = [prices.cost(one, found.reads) for one, found in zip(candidates, tuned, strict=True)]
    chosen, best = recommended(costs, tuned, max_reads), frontier(costs)
    shown = sorted({*best, *([] if chosen is None else [chosen])})
    plans = {}
    with stage_progress(progress, "plan", len(shown), "builds"):
        for i in shown:
            plans[i] = prices.plan(candidates[i])
            progress.advance(1)
    rows = (
        replace(row_of(one, costs[i]), on_frontier=i in best, recommended=i == chosen, plan=plans.get(i))
        for i, one in enumerate(candidates)
    )
    return tuple(rows), chosen
