"""Part *latency*: one query at a time on one thread, DiskANN and indexmill in turns."""

from __future__ import annotations

from itertools import product
from typing import Any

from indexmill.jobs.bench.common.curves import (
    AROUND,
    RECALLS,
    Row,
    at_recalls,
    coarse_sweep,
    in_turns,
    sizes_at,
    summaries,
    trial,
    value_at,
)
from indexmill.jobs.bench.common.intervals import Curve, curve, figure_at, mean, p99, ratio_at, short
from indexmill.jobs.bench.common.parameters import ORDER
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.ours import DISKANN_WIDTH, Setting
from indexmill.jobs.bench.programs.rates import ENTRIES, POLICIES, WIDTHS
from indexmill.jobs.bench.programs.workspace import Workspace

ROUNDS = 2
STATISTICS = {"mean": mean, "p99": p99}


def measure(space: Workspace) -> dict[str, Any]:
    """Choose a setting by its mean latency on the first half of the queries; measure both sides on the second.

    DiskANN's latency is the time of a `search` call, from Python. Ours is told twice: by the reader's own counter,
    and by the time of an `Index.search` call, which is what compares with DiskANN's.
    """
    diskann.ensure(space)
    index = ours.ensure(space, ORDER)
    with ours.Ours(space) as searcher, diskann.DiskAnn(space) as peer:
        setting, tuned, grid = _choose(searcher, index)
        their_tuned = coarse_sweep(peer.search("batch"))
        series = {
            "diskann": peer.search("single"),
            "indexmill": searcher.search(index, setting, way="single"),
        }
        sizes = {"diskann": sizes_at(their_tuned), "indexmill": sizes_at(tuned)}
        rounds = in_turns(series, sizes, ROUNDS)
    places = {
        "diskann": ("diskann", "call_us"),
        "indexmill": ("indexmill", "call_us"),
        "counter": ("indexmill", "latency_us"),
    }
    curves = {name: curve([done[side] for done in rounds], cost) for name, (side, cost) in places.items()}
    return {
        "recalls": RECALLS,
        "queries": space.halves,
        "rounds_measured": ROUNDS,
        "order": ORDER,
        "setting": setting.to_dict(),
        "diskann_width": DISKANN_WIDTH,
        "grid": grid,
        "tuning_rows": {"indexmill": summaries(tuned), "DiskANN": summaries(their_tuned)},
        "us": {
            name: _each(lambda at, one, found=found: figure_at(found, at, one))
            for name, found in curves.items()
        },
        "ratio": _ratios(curves["indexmill"], curves["diskann"]),
        "ratio_by_counter": _ratios(curves["counter"], curves["diskann"]),
        "rounds": short(rounds),
    }


def _each(figure: Any) -> dict[str, Any]:
    """Return a figure at each recall for each statistic."""
    return at_recalls(lambda at: {name: figure(at, statistic) for name, statistic in STATISTICS.items()})


def _ratios(mine: Curve, theirs: Curve) -> dict[str, Any]:
    return _each(lambda at, statistic: ratio_at(mine, theirs, at, statistic))


def _choose(searcher: ours.Ours, index: str) -> tuple[Setting, list[Row], list[dict[str, Any]]]:
    """Return the setting with the least mean latency at recall 0.95, its sweep, and all that was tried.

    The list sizes are each policy's around that recall; entries, widths and the order of completions change
    little about it. The sweep has more queries in flight: that moves no recall and saves time.
    """
    grid: list[dict[str, Any]] = []
    tried: dict[Setting, float | None] = {}
    for policy in POLICIES:
        sizes = sizes_at(coarse_sweep(searcher.search(index, Setting(policy))), AROUND)
        exact = (True, False) if policy == "pipeline" else (True,)
        for entry, width, deterministic in product(ENTRIES, WIDTHS, exact):
            setting = Setting(policy, entry, width, 1, 1, deterministic)
            rows = trial(searcher.search(index, setting), sizes)
            tried[setting] = value_at(rows, "latency_us_mean")
            grid.append({**setting.to_dict(), "latency_us_mean": tried[setting]})
    best = min(tried, key=lambda one: tried[one] or float("inf"))
    faster = Setting(best.policy, best.entry, best.beam_width, deterministic=best.deterministic)
    return best, coarse_sweep(searcher.search(index, faster)), grid
