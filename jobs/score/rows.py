"""What the scores of all kinds of index but graphs have in common: one row of numbers for each setting."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from indexmill.formats.errors import ConfigError, InputError
from indexmill.jobs.score.graph import summarise_counters
from indexmill.jobs.score.hits import right_answers
from indexmill.pipeline.kinds.common.recall import mean_recall

if TYPE_CHECKING:
    from indexmill.jobs.score.graph import QuerySet
    from indexmill.reader.index import SearchResult
    from indexmill.reader.ivf import IvfIndex
    from indexmill.reader.lsh import LshIndex


def refuse_others(foreign: Mapping[str, Any], kind: str) -> None:
    """Refuse flags, by name, that belong to another kind of index.

    Raises
    ------
    ConfigError
        If one was given.
    """
    given = [flag for flag, value in foreign.items() if value is not None]
    if given:
        raise ConfigError(f"{given[0]}: not for indexes of kind {kind}, as this one is; leave it out")


def check_truth(queries: QuerySet, k: int) -> None:
    """Refuse a truth that holds fewer than `k` neighbours a query.

    Raises
    ------
    InputError
    """
    if queries.truth_ids.shape[1] < k:
        raise InputError(
            f"truth: {queries.truth_ids.shape[1]} neighbours a query, but k is {k}; use a smaller -k"
        )


def median_figures(
    index: IvfIndex | LshIndex,
    queries: QuerySet,
    k: int,
    repeat: int,
    search: Callable[[], SearchResult],
    more: Callable[[SearchResult], dict[str, float]] | None = None,
) -> dict[str, float]:
    """Search `repeat` times; return medians of ``recall`` with its interval, ``qps``, and every counter's mean.

    Parameters
    ----------
    search : callable
        Of all `queries`, for `k` neighbours.
    more : callable, optional
        Further figures of a result.
    """
    figures = []
    for _ in range(repeat):
        began = time.perf_counter()
        found = search()
        seconds = time.perf_counter() - began
        recall = mean_recall(np.count_nonzero(right_answers(index, found, queries, k), axis=1) / k)
        figures.append(
            {
                "recall": recall.mean,
                "recall_low": recall.low,
                "recall_high": recall.high,
                **({} if more is None else more(found)),
                "qps": len(queries) / seconds,
                **summarise_counters(found.counters),
            }
        )
    return {key: float(np.median([one[key] for one in figures])) for key in figures[0]}
