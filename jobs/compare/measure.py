"""The measurements of a comparison: every index at every policy and list size, taking turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.jobs.compare.contenders import Contender
from indexmill.jobs.compare.units import units_read
from indexmill.jobs.score.graph import Setting, search_once, summarise
from indexmill.jobs.score.queries import QuerySet
from indexmill.jobs.score.rows import Run

#: Search list sizes of a sweep; close enough that costs between two of them are nearly linear in recall.
SWEEP_SIZES = (10, 13, 16, 20, 25, 32, 40, 50, 64, 80, 100, 130, 170, 240)
#: Queries that each index answers before it is measured.
WARM_UP_QUERIES = 50


@dataclass(frozen=True)
class Turn:
    """One thing to measure: an index, how it is searched, and with which list size."""

    contender: Contender
    setting: Setting
    size: int


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
    units: Sequence[int] = (),
) -> list[Measurement]:
    """Measure every contender at every policy and size; `tick` is called after each run.

    Each contender has answered some queries before the first one counts. See `measure` for `units`.
    """
    for contender in contenders:
        search_once(contender.index, queries.part(first=WARM_UP_QUERIES), sizes[0], setting)
    rounds = [
        [Turn(contender, replace(setting, policy=policy), size) for contender in contenders]
        for size in sizes
        for policy in policies
    ]
    return measure(rounds, queries, repeat, tick, units)


def measure(
    rounds: Sequence[Sequence[Turn]],
    queries: QuerySet,
    repeat: int,
    tick: Callable[[], None] = lambda: None,
    units: Sequence[int] = (),
) -> list[Measurement]:
    """Run every turn of every round `repeat` times and return what each turn gave, in their order.

    All rounds are run before any is repeated, so that the runs of a turn lie far apart, and a machine that is slow for
    a while spoils no more than one of them. In each round another turn is the first each time.

    Parameters
    ----------
    units : sequence of int
        Bytes of the units that are counted (`jobs.compare.units`), in one more search of each turn, not timed.
    """
    runs: list[list[list[Run]]] = [[[] for _ in turns] for turns in rounds]
    for time in range(repeat):
        for turns, of_turns in zip(rounds, runs, strict=True):
            for place in range(len(turns)):
                i = (place + time) % len(turns)
                turn = turns[i]
                of_turns[i].append(search_once(turn.contender.index, queries, turn.size, turn.setting))
                tick()
    found = []
    for turns, of_turns in zip(rounds, runs, strict=True):
        for turn, of_turn in zip(turns, of_turns, strict=True):
            if units:
                of_turn = _with_units(turn, of_turn, queries, units)
                tick()
            row = {
                "index": turn.contender.name,
                "again": turn.contender.again,
                **summarise(turn.contender.index, turn.size, turn.setting, of_turn),
            }
            found.append(Measurement(row, tuple(of_turn)))
    return found


def _with_units(turn: Turn, runs: Sequence[Run], queries: QuerySet, units: Sequence[int]) -> list[Run]:
    """Return the runs of a turn with the units that each query reads among the counters."""
    wanted = turn.setting.k + (queries.own is not None)
    counted = units_read(
        turn.contender.index, queries.vectors, wanted, turn.size, turn.setting.options(), units
    )
    return [replace(run, counters={**run.counters, **counted}) for run in runs]
