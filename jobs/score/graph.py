"""Recall and cost of searches over a query set with known answers."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.jobs.score.hits import right_answers
from indexmill.pipeline.kinds.common.recall import mean_recall
from indexmill.reader.choices import DEFAULT_ENTRY, DEFAULT_POLICY

if TYPE_CHECKING:
    from indexmill.formats.device import DeviceProfile
    from indexmill.reader._native import Filter
    from indexmill.reader.index import Index

#: Deepest queue that device profiles tell of.
MAX_DEPTH = 128


@dataclass(frozen=True)
class QuerySet:
    """Queries whose nearest neighbours are known.

    Attributes
    ----------
    vectors : array, shape (n_queries, dim)
    truth_ids : int64 array, shape (n_queries, >= k)
        Vector ids, nearest first.
    truth_distances : float32 array, shape (n_queries, >= k)
        Squared Euclidean distances of the metric's space: of normalised vectors under cosine.
    own : int64 array, shape (n_queries,), optional
        Vector id of the query itself, where queries are rows of the index: it counts neither in the truth nor
        in the results.
    """

    vectors: NDArray[Any]
    truth_ids: NDArray[np.int64]
    truth_distances: NDArray[np.float32]
    own: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def part(self, skip: int = 0, first: int | None = None) -> QuerySet:
        """Leave out the first `skip` queries, then keep the `first` next ones (None: all).

        Raises
        ------
        InputError
            If nothing is left.
        """
        chosen = slice(skip, None if first is None else skip + first)
        vectors = self.vectors[chosen]
        if len(vectors) == 0:
            raise InputError(f"--skip {skip}: only {len(self)} queries are there; skip fewer")
        own = None if self.own is None else self.own[chosen]
        return replace(
            self,
            vectors=vectors,
            truth_ids=self.truth_ids[chosen],
            truth_distances=self.truth_distances[chosen],
            own=own,
        )


@dataclass(frozen=True)
class Setting:
    """How to search: what one row of a score or of a sweep has in common.

    `None` leaves a value to the reader's default.
    """

    k: int = 10
    policy: str = DEFAULT_POLICY
    entry: str = DEFAULT_ENTRY
    threads: int = 1
    beam_width: int | None = None
    inflight: int | None = None
    deterministic: bool = True
    allow: Filter | None = None

    @property
    def width(self) -> int:
        """Page reads a query has in flight at most."""
        return _reader_default("beam_width") if self.beam_width is None else self.beam_width

    @property
    def in_flight(self) -> int:
        """Queries a thread interleaves."""
        return _reader_default("inflight") if self.inflight is None else self.inflight

    def options(self) -> dict[str, Any]:
        """Keyword arguments of `Index.search`, without k and L."""
        given = {"beam_width": self.beam_width, "inflight": self.inflight}
        chosen = {name: value for name, value in given.items() if value is not None}
        return {
            "policy": self.policy,
            "entry": self.entry,
            "threads": self.threads,
            "deterministic": self.deterministic,
            "allow": self.allow,
            **chosen,
        }


@dataclass(frozen=True)
class Run:
    """What one search of a query set gave.

    Attributes
    ----------
    hits : int64 array, shape (n_queries,)
        Right answers among the first k.
    counters : dict of arrays, shape (n_queries,)
        The reader's.
    seconds : float
        Wall clock of the whole set.
    """

    hits: NDArray[np.int64]
    counters: dict[str, NDArray[Any]]
    seconds: float


def score(index: Index, queries: QuerySet, L: int, setting: Setting, repeat: int = 1) -> dict[str, Any]:
    """Search all `queries` with list size `L` and return one row of numbers: of several runs, the medians.

    Raises
    ------
    InputError
        If the truth holds fewer than k neighbours a query, or the queries do not fit the index.
    """
    return summarise(index, L, setting, [search_once(index, queries, L, setting) for _ in range(repeat)])


def summarise(index: Index, L: int, setting: Setting, runs: Sequence[Run]) -> dict[str, Any]:
    """Make one row of numbers of equal runs: the medians.

    Returns
    -------
    dict
        ``recall`` with its 95% interval over queries, ``qps`` (queries a second, wall clock, all threads),
        ``reads_per_second`` (pages), latency over all queries (``latency_us_mean``, ``_p50``, ``_p99``), and the
        mean of every other counter of the reader: a query's pages_read, bytes_read, bytes_used, hops,
        distances and more.
    """
    found = [_figures(run, setting.k) for run in runs]
    middle = {key: float(np.median([one[key] for one in found])) for key in found[0]}
    row: dict[str, Any] = {
        "L": L,
        "policy": setting.policy,
        "entry": index.default_entry if setting.entry == "auto" else setting.entry,
        "beam_width": setting.width,
        "k": setting.k,
        "n_queries": len(runs[0].hits),
        "threads": setting.threads,
        "inflight": setting.in_flight,
        "repeat": len(runs),
        "deterministic": setting.deterministic,
        "n_allowed": None if setting.allow is None else setting.allow.n_allowed,
        "cache_bytes": index.cached.n_bytes,
        **middle,
    }
    return row | {"reads_per_second": row["pages_read"] * row["qps"]}


def search_once(index: Index, queries: QuerySet, L: int, setting: Setting) -> Run:
    """Search all `queries` once.

    Raises
    ------
    InputError
        If the truth holds fewer than k neighbours a query, or the queries do not fit the index.
    """
    k = setting.k
    if queries.truth_ids.shape[1] < k:
        raise InputError(
            f"truth: {queries.truth_ids.shape[1]} neighbours a query, but k is {k}; use a smaller -k"
        )
    extra = 0 if queries.own is None else 1
    began = time.perf_counter()
    found = index.search(queries.vectors, k + extra, L=L, **setting.options())
    seconds = time.perf_counter() - began
    hits = np.count_nonzero(right_answers(index, found, queries, k), axis=1)
    return Run(hits, found.counters, seconds)


def _figures(run: Run, k: int) -> dict[str, float]:
    recall = mean_recall(run.hits / k)
    return {
        "recall": recall.mean,
        "recall_low": recall.low,
        "recall_high": recall.high,
        "qps": len(run.hits) / run.seconds,
        **summarise_counters(run.counters),
    }


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


def with_device(row: dict[str, Any], profile: DeviceProfile | None) -> dict[str, Any]:
    """Add what the device reached when it was measured with as many 4 KiB reads in flight, and the share of it.

    Returns
    -------
    dict
        `row` with ``device_iops`` (reads a second) and ``device_fraction``, None where they are not known.
    """
    depth = min(row["threads"] * row["inflight"] * row["beam_width"], MAX_DEPTH)
    iops = None if profile is None else profile.iops_at(depth)
    return row | {
        "device_iops": iops,
        "device_fraction": None if iops is None else row["reads_per_second"] / iops,
    }


def _reader_default(name: str) -> int:
    """Return the reader's value of a search option that is not given."""
    from indexmill.reader.index import Index

    return int(inspect.signature(Index.search).parameters[name].default)
