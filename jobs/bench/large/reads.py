"""Reads of searches by recall: pages of graphs, bytes of inverted lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from indexmill.jobs.bench.common.curves import (
    LONG_SIZES,
    PROBES,
    Search,
    at_recalls,
    summaries,
    tuned_trial,
    value_at,
)
from indexmill.jobs.bench.common.intervals import curve, figures_at
from indexmill.jobs.bench.common.opened import search_of
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.workspace import Workspace


def index_reads(space: Workspace, name: str, is_graph: bool) -> dict[str, Any]:
    """Return the page reads of our graph `name`, or the bytes that lists read and the lists probed (``nprobe``)."""
    if is_graph:
        with ours.Ours(space) as searcher:
            return reads_of(searcher.search(name, ours.Setting()))
    lists = search_of(space.data, space.index(name), "nprobe")
    return reads_of(lists, cost="bytes_read", sizes=PROBES, effort="nprobe")


def reads_of(
    search: Search,
    tuning: Search | None = None,
    cost: str = "pages_read",
    sizes: Sequence[int] = LONG_SIZES,
    effort: str = "L",
) -> dict[str, Any]:
    """Return `cost` and `effort` at each recall, each under its own name, and the rows of both halves of the queries.

    Parameters
    ----------
    tuning : function, optional
        The search that sweeps the tuning queries, where another than `search` is faster and finds the same.
    sizes : sequence of int
        Efforts of that sweep.
    """
    tuned, found = tuned_trial(search, sizes, tuning)
    return {
        cost: figures_at(curve([found], cost)),
        effort: at_recalls(lambda recall: value_at(found, "L", recall)),
        "rows": summaries(found),
        "tuning_rows": summaries(tuned),
    }
