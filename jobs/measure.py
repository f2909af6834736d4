"""The measurements of a comparison: every index at every policy and list size, taking turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.jobs.contenders import Contender
from indexmill.jobs.score import QuerySet, Run, Setting, search_once, summarise

#: Search list sizes of a sweep; each step costs about a third more than the one before.
SWEEP_SIZES = (10, 15, 20, 30, 40, 60, 80, 120, 160, 240)
#: Queries that each index answers before it is measured.
WARM_UP_QUERIES = 50


@dataclass(frozen=True)
class Measurement:
    """All runs of one index at one policy and list size, and their row of numbers.

    Attributes
    ----------
    row : dict
        What `score` returns, with ``index`` and ``again``.
    runs : tuple of Run
    """

    row: dict[str, Any]
    runs: tuple[Run, ...]

    @property
    def recalls(self) -> NDArray[np.float64]:
        """Recall of each query, shape (n_queries,); equal runs find the same."""
        return self.runs[0].hits / float(self.row["k"])

    def counter(self, name: str) -> NDArray[np.float64]:
        """Counter `name` of each query, shape (n_queries,).

        Of ``latency_us`` that of the run whose mean is the median of the runs (of the two middle runs their
        mean), so that the mean over queries is the ``latency_us_mean`` of the row.
        """
        runs = np.array([run.counters[name] for run in self.runs], np.float64)
        order = np.argsort(runs.mean(axis=1), kind="stable")
        middle = order[(len(order) - 1) // 2 : len(order) // 2 + 1]
        counts: NDArray[np.float64] = runs[middle].mean(axis=0)
        return counts


def sweep(
    contenders: Sequence[Contender],
    queries: QuerySet,
    policies: Sequence[str],
    sizes: Sequence[int],
    setting: Setting,
    repeat: int = 1,
    tick: Callable[[], None] = lambda: None,
) -> list[Measurement]:
    """Measure every contender at every policy and size; `tick` is called after each run.

    Each contender has answered some queries before the first one counts.
    """
    for contender in contenders:
        search_once(contender.index, queries.part(first=WARM_UP_QUERIES), sizes[0], setting)
    found = []
    for size in sizes:
        for policy in policies:
            turns = [(contender, size) for contender in contenders]
            found += measure(turns, queries, replace(setting, policy=policy), repeat, tick)
    return found


def measure(
    turns: Sequence[tuple[Contender, int]],
    queries: QuerySet,
    setting: Setting,
    repeat: int,
    tick: Callable[[], None] = lambda: None,
) -> list[Measurement]:
    """Measure contenders, each with its list size, `repeat` times.

    They take turns, so that a machine that slows down slows all of them, and another one is first each time.
    """
    runs: list[list[Run]] = [[] for _ in turns]
    for time in range(repeat):
        for place in range(len(turns)):
            i = (place + time) % len(turns)
            contender, size = turns[i]
            runs[i].append(search_once(contender.index, queries, size, setting))
            tick()
    return [
        Measurement(
            {
                "index": contender.name,
                "again": contender.again,
                **summarise(contender.index, size, setting, of),
            },
            tuple(of),
        )
        for (contender, size), of in zip(turns, runs, strict=True)
    ]
