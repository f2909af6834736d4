"""Part *qps*: queries a second at equal recall, DiskANN and indexmill in turns."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from statistics import median
from typing import Any

import diskann
import ours
from curves import COARSE_SIZES, RECALL, ratio, sizes_around, value_at
from dataset import read_bin
from page_reads import ENTRIES, POLICIES
from workspace import BEAM_WIDTH, IN_FLIGHT, THREADS, Workspace

ROUNDS = 5
ORDER = "star"
#: Threads with which DiskANN has as many queries in flight as indexmill.
MANY_THREADS = THREADS * IN_FLIGHT


def measure(space: Workspace) -> dict[str, Any]:
    """Choose settings on the first half of the queries, then measure five rounds on the second in turns.

    Of each side there are two series. ``diskann`` and ``indexmill`` have the same threads, and are the headline.
    ``indexmill_single`` and ``diskann_many`` tell how much of its ratio is the interleaving of queries: the one
    goes without it, the other has as many queries in flight by more threads.
    """
    half, n_queries = space.data.half(), len(read_bin(space.data.query))
    policy, entry, tuned = _tune(space, half)
    mine = sizes_around(tuned)
    theirs = sizes_around(diskann.search(space, COARSE_SIZES, 0, half))
    series: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "diskann": lambda: diskann.search(space, theirs, half, n_queries),
        "indexmill": lambda: ours.search(space, ORDER, mine, policy, entry, half, n_queries),
        "indexmill_single": lambda: ours.search(space, ORDER, mine, policy, entry, half, n_queries, 1),
        "diskann_many": lambda: diskann.search(space, theirs, half, n_queries, MANY_THREADS),
    }
    rounds = [{name: _at_recall(search()) for name, search in series.items()} for _ in range(ROUNDS)]
    medians = {name: _median([done[name]["qps"] for done in rounds]) for name in series}
    return {
        "recall": RECALL,
        "threads": THREADS,
        "in_flight": IN_FLIGHT,
        "many_threads": MANY_THREADS,
        "beam_width": BEAM_WIDTH,
        "order": ORDER,
        "policy": policy,
        "entry": entry,
        "reporting_queries": n_queries - half,
        "medians": medians,
        "qps_ratio": ratio(medians["indexmill"], medians["diskann"]),
        "qps_ratio_single": ratio(medians["indexmill_single"], medians["diskann"]),
        "qps_ratio_many": ratio(medians["indexmill"], medians["diskann_many"]),
        "rounds": rounds,
    }


def _at_recall(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"qps": value_at(rows, "qps"), "rows": rows}


def _tune(space: Workspace, half: int) -> tuple[str, str, list[dict[str, Any]]]:
    """Return the policy and entry with the most queries a second at the compared recall, and their sweep."""
    sweeps = [
        (policy, entry, ours.search(space, ORDER, COARSE_SIZES, policy, entry, 0, half))
        for policy, entry in product(POLICIES, ENTRIES)
    ]
    return max(sweeps, key=lambda sweep: value_at(sweep[2], "qps") or 0.0)


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if len(known) == len(values) else None
