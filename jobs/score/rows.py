"""One search of a query set and the figures of it, for every kind of index; rows of indexes that one option tunes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.jobs.console.tables import add_row, plain_table
from indexmill.jobs.score.hits import right_answers
from indexmill.jobs.score.table import Column
from indexmill.pipeline.kinds.common.recall import mean_recall

if TYPE_CHECKING:
    from rich.table import Table

    from indexmill.jobs.score.queries import QuerySet
    from indexmill.reader.index import SearchResult
    from indexmill.reader.ivf import IvfIndex
    from indexmill.reader.lsh import LshIndex


@dataclass(frozen=True)
class Run:
    """Results of one search of a query set.

    Attributes
    ----------
    hits : int64 array, shape (n_queries,)
        Right answers among the first k.
    counters : dict of arrays, shape (n_queries,)
        The reader's.
    seconds : float
        Wall clock of the whole set.
    more : dict of float
        Further figures of its results.
    """

    hits: NDArray[np.int64]
    counters: dict[str, NDArray[Any]]
    seconds: float
    more: Mapping[str, float] = field(default_factory=dict)

    def figures(self, k: int) -> dict[str, float]:
        """Return recall with its 95% interval over queries, queries a second, and the mean of every counter."""
        recall = mean_recall(self.hits / k)
        return {
            "recall": recall.mean,
            "recall_low": recall.low,
            "recall_high": recall.high,
            **self.more,
            "qps": len(self.hits) / self.seconds,
            **summarise_counters(self.counters),
        }


def run_once(
    queries: QuerySet,
    k: int,
    metric: str,
    exact: bool,
    search: Callable[[int], SearchResult],
    more: Callable[[SearchResult], dict[str, float]] | None = None,
) -> Run:
    """Search all `queries` once.

    Parameters
    ----------
    exact : bool
        Whether the index stores its vectors as they were read: see `right_answers`.
    search : callable
        Searches all queries for as many neighbours as it is given.
    more : callable, optional
        Further figures of a result.

    Raises
    ------
    InputError
        If the truth holds fewer than k neighbours a query, or the queries do not fit the index.
    """
    if queries.truth_ids.shape[1] < k:
        raise InputError(
            f"truth: {queries.truth_ids.shape[1]} neighbours a query, but k is {k}; use a smaller -k"
        )
    began = time.perf_counter()
    found = search(k if queries.own is None else k + 1)
    seconds = time.perf_counter() - began
    hits = np.count_nonzero(right_answers(found, queries, k, metric, exact), axis=1)
    return Run(hits, found.counters, seconds, {} if more is None else more(found))


def medians(runs: Sequence[Run], k: int) -> dict[str, float]:
    """Return the median of every figure over runs of equal searches."""
    found = [run.figures(k) for run in runs]
    return {name: float(np.median([one[name] for one in found])) for name in found[0]}


def summarise_counters(counters: dict[str, NDArray[Any]]) -> dict[str, float]:
    """Mean of each counter over queries; latency also at the 50th and 99th percentile."""
    means: dict[str, float] = {}
    for name, values in counters.items():
        if name == "latency_us":
            means["latency_us_mean"] = float(np.mean(values))
            means["latency_us_p50"] = float(np.percentile(values, 50))
            means["latency_us_p99"] = float(np.percentile(values, 99))
        else:
            means[name] = float(np.mean(values))
    return means


@dataclass(frozen=True)
class Setting:
    """Options that the rows of a score have in common; `None` leaves a value to the reader's default.

    Attributes
    ----------
    own : mapping
        Search options that only this kind of index has.
    """

    k: int = 10
    threads: int = 1
    inflight: int | None = None
    repeat: int = 1
    own: Mapping[str, Any] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """Keyword arguments of the reader's search, without k and the option that rows differ in."""
        given = {"threads": self.threads, "inflight": self.inflight, **self.own}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Series:
    """Rows that differ in one search option.

    Attributes
    ----------
    option : str
        Keyword of the reader's search.
    key : str
        Its name in rows and tables.
    exact : bool
        Whether the index stores its vectors as they were read.
    more : callable, optional
        Further figures of a result; `blank` are their values where there are none.
    """

    option: str
    key: str
    exact: bool
    more: Callable[[SearchResult], dict[str, float]] | None = None
    blank: Mapping[str, None] = field(default_factory=dict)

    def rows(
        self, index: IvfIndex | LshIndex, queries: QuerySet, values: Sequence[int], setting: Setting
    ) -> list[dict[str, Any]]:
        """Search all `queries` with each of `values`; return a row of numbers for each, medians of several runs.

        Returns
        -------
        list of dict
            The option, what `setting` says, and the figures of a `Run`: latency as in `summarise_counters`, the mean
            of every other counter. None stands for what is not known.

        Raises
        ------
        InputError
            If the truth holds fewer than k neighbours a query, or the queries do not fit the index.
        """
        k = setting.k

        def figures(value: int) -> dict[str, float | None]:
            def search(wanted: int) -> SearchResult:
                return index.search(queries.vectors, wanted, **{self.option: value}, **setting.options())

            runs = [
                run_once(queries, k, index.metric, self.exact, search, self.more)
                for _ in range(setting.repeat)
            ]
            return {name: None if np.isnan(one) else one for name, one in medians(runs, k).items()}

        return [
            {
                self.key: value,
                "k": k,
                "n_queries": len(queries),
                "threads": setting.threads,
                "inflight": setting.inflight,
                **setting.own,
                "repeat": setting.repeat,
                "engine": index.engine,
                **self.blank,
                **figures(value),
            }
            for value in values
        ]


def rows_table(rows: Sequence[dict[str, Any]], own: Sequence[str], columns: Sequence[Column]) -> Table:
    """Make a table of the rows of a `Series`; what they have in common stands in its title."""
    first = rows[0]
    title = [f"{first['n_queries']:,} queries", f"engine {first['engine']}", f"threads {first['threads']}"]
    title += [f"{name} {first[name]}" for name in ("inflight", *own) if first[name] is not None]
    if first["repeat"] > 1:
        title.append(f"medians of {first['repeat']} runs")
    table = plain_table(", ".join(title), [heading for heading, _ in columns])
    for row in rows:
        add_row(table, [show(row) for _, show in columns])
    return table
