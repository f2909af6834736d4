"""Recall and cost of searches of a graph, over a query set with known answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from indexmill.jobs.score.queries import QuerySet
from indexmill.jobs.score.rows import Run, medians, run_once
from indexmill.reader.choices import DEFAULT_BEAM_WIDTH, DEFAULT_ENTRY, DEFAULT_INFLIGHT, DEFAULT_POLICY

if TYPE_CHECKING:
    from indexmill.formats.device import DeviceProfile
    from indexmill.reader.index import Index, SearchResult
    from indexmill.reader.native import Filter

#: Deepest queue that device profiles measure.
MAX_DEPTH = 128


@dataclass(frozen=True)
class Setting:
    """Options of a search, which the queries of one row of a score or of a sweep have in common.

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
        return DEFAULT_BEAM_WIDTH if self.beam_width is None else self.beam_width

    @property
    def in_flight(self) -> int:
        """Queries a thread interleaves."""
        return DEFAULT_INFLIGHT if self.inflight is None else self.inflight

    def options(self) -> dict[str, Any]:
        """Keyword arguments of `Index.search`, without k and L."""
        return {
            "policy": self.policy,
            "entry": self.entry,
            "threads": self.threads,
            "deterministic": self.deterministic,
            "allow": self.allow,
            "beam_width": self.width,
            "inflight": self.in_flight,
        }


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
    middle = medians(runs, setting.k)
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

    def search(wanted: int) -> SearchResult:
        return index.search(queries.vectors, wanted, L=L, **setting.options())

    return run_once(queries, setting.k, index.metric, stores_exact_vectors(index), search)


def stores_exact_vectors(index: Index) -> bool:
    """Whether nodes hold the vectors as they were read, so that all scores are exact, by the manifest."""
    from indexmill.formats.index.manifest import read_manifest

    return bool(read_manifest(index.path, ("graph",)).parameters["node_dtype"] == "same")


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
