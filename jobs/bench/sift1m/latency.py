"""Part *latency*: one query at a time on one thread, DiskANN and indexmill in short turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product, zip_longest
from typing import Any, TypeAlias

import numpy as np

from indexmill.jobs.bench.common import disk
from indexmill.jobs.bench.common.curves import (
    AROUND,
    RECALLS,
    Round,
    Row,
    Span,
    at_recalls,
    coarse_sweep,
    ratio,
    sizes_at,
    summaries,
    trial,
    value_at,
)
from indexmill.jobs.bench.common.dataset import K
from indexmill.jobs.bench.common.intervals import over_rounds, short
from indexmill.jobs.bench.common.parameters import ORDER
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.ours import DISKANN_WIDTH, Setting
from indexmill.jobs.bench.programs.rates import ENTRIES, POLICIES, WIDTHS
from indexmill.jobs.bench.programs.workspace import Workspace

ROUNDS = 5
#: Queries of a turn: at most 0.4 s, so that a slow moment of the machine meets both sides.
TURN = 100
#: Recalls on the tuning queries at which the reported list sizes lie: more around 0.98, where P99 is least certain.
POINTS = (0.87, 0.91, 0.94, 0.96, 0.97, 0.975, 0.98, 0.988)
STATISTICS = ("mean", "p99")
#: Percentiles of each time that the record keeps besides its mean; 100 is the longest.
PERCENTILES = {
    "call_us": (50, 90, 95, 98, 99, 99.5, 99.9, 100),
    "latency_us": (50, 99),
    "io_wait_us": (50, 99, 100),
    "ready_us": (99, 100),
}
#: Microseconds beyond the median of its list size at which a call is slow, and the recall at which slow calls are told.
SLOW_US = 1000
SLOW_RECALL = 0.98
#: Reads in flight at which the bare disk is measured in each round.
DEPTHS = (1, 8)
READ_SECONDS = 2

#: What is known of each query, arrays of shape (n_queries,); see `serving.make_row`.
Calls: TypeAlias = dict[str, Any]
#: Calls of one search by list size.
Sweep: TypeAlias = dict[int, Calls]
#: Searches some queries one by one with a list size.
Timed: TypeAlias = Callable[[int, Span], Row]


def measure(space: Workspace) -> dict[str, Any]:
    """Choose a setting by its mean latency on the first half of the queries; measure both sides on the second.

    DiskANN's latency is the time of a `search` call, from Python. Ours is told twice: by the reader's own counter,
    and by the time of an `Index.search` call, which is what compares with DiskANN's. Ours is also measured with ids out
    of the page cache (``cold``), and with reads taken up as they arrive (``arriving``).
    """
    diskann.ensure(space)
    index = ours.ensure(space, ORDER)
    with ours.Ours(space) as searcher, diskann.DiskAnn(space) as peer:
        setting, tuned, grid = _choose(searcher, index)
        their_tuned = coarse_sweep(peer.search())
        arriving = replace(setting, deterministic=False)
        series: dict[str, Timed] = {
            "diskann": lambda size, span: peer.ask(size, span, "single"),
            "indexmill": lambda size, span: searcher.ask(index, setting, size, span, way="single"),
            "cold": lambda size, span: searcher.ask(index, setting, size, span, way="cold"),
            "arriving": lambda size, span: searcher.ask(index, arriving, size, span, way="single"),
        }
        sizes = {name: sizes_at(their_tuned if name == "diskann" else tuned, POINTS) for name in series}
        sweeps: list[dict[str, Sweep]] = []
        reads = []
        for _ in range(ROUNDS):
            sweeps.append(_in_turns(series, sizes, space.halves["report"]))
            graph = space.index(index) / "graph.imx"
            reads.append([disk.read_times(graph, depth, READ_SECONDS) for depth in DEPTHS])
    rounds: list[Round] = [
        {name: [_row(size, calls) for size, calls in sweep.items()] for name, sweep in done.items()}
        for done in sweeps
    ]
    times = {name: (name, "call_us") for name in series} | {"counter": ("indexmill", "latency_us")}
    return {
        "recalls": RECALLS,
        "queries": space.halves,
        "rounds_measured": ROUNDS,
        "turn": TURN,
        "order": ORDER,
        "setting": setting.to_dict(),
        "diskann_width": DISKANN_WIDTH,
        "grid": grid,
        "tuning_rows": {"indexmill": summaries(tuned), "DiskANN": summaries(their_tuned)},
        "us": {name: _figures(rounds, *time) for name, time in times.items()},
        "ratio": _ratios(rounds, *times["indexmill"]),
        "ratio_by_counter": _ratios(rounds, *times["counter"]),
        "ratio_cold": _ratios(rounds, *times["cold"]),
        "ratio_arriving": _ratios(rounds, *times["arriving"]),
        "slow": {
            "beyond_us": SLOW_US,
            "recall": SLOW_RECALL,
            "series": {name: slow_calls([done[name] for done in sweeps]) for name in series},
        },
        "reads": [_reads(same_depth) for same_depth in zip(*reads, strict=True)],
        "rounds": short(rounds),
    }


def _choose(searcher: ours.Ours, index: str) -> tuple[Setting, list[Row], list[dict[str, Any]]]:
    """Return the setting with the least mean latency at recall 0.95, its sweep, and all that was tried.

    The list sizes are each policy's around that recall; entries and widths change little about it. The sweep has more
    queries in flight: that moves no recall and saves time.
    """
    grid: list[dict[str, Any]] = []
    tried: dict[Setting, float | None] = {}
    for policy in POLICIES:
        sizes = sizes_at(coarse_sweep(searcher.search(index, Setting(policy))), AROUND)
        for entry, width in product(ENTRIES, WIDTHS):
            setting = Setting(policy, entry, width, 1, 1)
            rows = trial(searcher.search(index, setting), sizes)
            tried[setting] = value_at(rows, "latency_us_mean")
            grid.append({**setting.to_dict(), "latency_us_mean": tried[setting]})
    best = min(tried, key=lambda one: tried[one] or float("inf"))
    faster = Setting(best.policy, best.entry, best.beam_width)
    return best, coarse_sweep(searcher.search(index, faster)), grid


def _in_turns(
    series: Mapping[str, Timed], sizes: Mapping[str, Sequence[int]], queries: Span
) -> dict[str, Sweep]:
    """Search `TURN` queries with the least list size of each search, then with the next; then the next queries.

    Another search begins in each turn, so that none always follows the same one.
    """
    parts: dict[str, dict[int, list[Calls]]] = {name: {size: [] for size in sizes[name]} for name in series}
    first, last = queries
    turn = 0
    for begin in range(first, last, TURN):
        span = (begin, min(begin + TURN, last))
        for row in zip_longest(*(sizes[name] for name in series)):
            turns = list(zip(series, row, strict=True))
            for name, size in turns[turn % len(turns) :] + turns[: turn % len(turns)]:
                if size is not None:
                    parts[name][size].append(series[name](size, span)["queries"])
            turn += 1
    return {name: {size: joined(calls) for size, calls in by_size.items()} for name, by_size in parts.items()}


def joined(parts: Sequence[Mapping[str, Any]]) -> Calls:
    """Put what is known of the queries of several turns, or rounds, one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _row(size: int, calls: Calls) -> Row:
    """Return a row of `curves`, with percentiles of each time and the number of slow calls."""
    row: Row = {
        "L": size,
        "n_queries": len(calls["hits"]),
        "recall": float(calls["hits"].mean()) / K,
        "recall1": float(calls["hits1"].mean()),
        "pages_read": float(calls["pages_read"].mean()),
    }
    for name, percentiles in PERCENTILES.items():
        if name in calls:
            row[f"{name}_mean"] = round(float(calls[name].mean()), 1)
            row |= {f"{name}_p{p:g}": round(float(np.percentile(calls[name], p)), 1) for p in percentiles}
    return row | {"slow": int(_is_slow(calls).sum())}


def _is_slow(calls: Calls) -> Any:
    return calls["call_us"] > np.median(calls["call_us"]) + SLOW_US


def _figures(rounds: Sequence[Round], name: str, time: str) -> dict[str, Any]:
    """Return a time of a search at each recall for each statistic, over rounds."""
    return _each(lambda at, statistic: over_rounds([_at(done[name], time, at, statistic) for done in rounds]))


def _ratios(rounds: Sequence[Round], name: str, time: str) -> dict[str, Any]:
    """Return the ratio of a time of a search to that of DiskANN's calls in the same round, as `_figures`."""

    def in_round(done: Round, at: float, statistic: str) -> float | None:
        theirs = _at(done["diskann"], "call_us", at, statistic)
        return ratio(_at(done[name], time, at, statistic), theirs)

    return _each(lambda at, statistic: over_rounds([in_round(done, at, statistic) for done in rounds]))


def _at(rows: Sequence[Row], time: str, at: float, statistic: str) -> float | None:
    return value_at(rows, f"{time}_{statistic}", at)


def _each(figure: Callable[[float, str], Any]) -> dict[str, Any]:
    return at_recalls(lambda at: {statistic: figure(at, statistic) for statistic in STATISTICS})


def slow_calls(rounds: Sequence[Sweep]) -> dict[str, Any]:
    """Tell the slow calls of a search from the others, with the list size whose recall is nearest to `SLOW_RECALL`."""
    pooled = {size: joined([done[size] for done in rounds]) for size in rounds[0]}
    size = min(pooled, key=lambda one: abs(float(pooled[one]["hits"].mean()) / K - SLOW_RECALL))
    calls, is_slow = pooled[size], _is_slow(pooled[size])
    n_slow, pages = int(is_slow.sum()), float(calls["pages_read"].mean())
    return {
        "L": size,
        "recall": float(calls["hits"].mean()) / K,
        "calls": len(is_slow),
        "slow": n_slow,
        "share": n_slow / len(is_slow),
        "share_of_reads": ratio(n_slow, len(is_slow) * pages),
        "means": {"usual": _means(calls, ~is_slow), "slow": _means(calls, is_slow)},
    }


def _means(calls: Calls, chosen: Any) -> dict[str, float | None]:
    """Mean of each time over the `chosen` calls; None where it is not known, or there are none."""
    return {
        name: round(float(calls[name][chosen].mean()), 1) if name in calls and chosen.any() else None
        for name in PERCENTILES
    }


def _reads(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how long reads of the bare disk took, over the rounds."""
    how = {name: rounds[0][name] for name in ("depth", "jobs", "seconds", "method")}
    percentiles = rounds[0]["percentiles_us"]
    return {
        **how,
        "slow": over_rounds([done["slow"] for done in rounds]),
        "percentiles_us": {
            p: over_rounds([done["percentiles_us"][p] for done in rounds]) for p in percentiles
        },
    }
