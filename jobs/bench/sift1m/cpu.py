"""Part *cpu*: CPU time a query at equal recall, of both sides, and where ours goes."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.curves import RECALL, RECALLS, coarse_sweep, in_turns, sizes_at
from indexmill.jobs.bench.common.intervals import medians_at, ratios_at, short
from indexmill.jobs.bench.common.parameters import ORDER, THREADS
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.jobs.bench.sift1m import cpu_profile
from indexmill.jobs.bench.sift1m.qps import chosen_setting

ROUNDS = 5


def measure(space: Workspace) -> dict[str, Any]:
    """User and system time of the searching process around its searches (getrusage), threads and all."""
    diskann.ensure(space)
    index, setting = ours.ensure(space, ORDER), chosen_setting(space)
    with ours.Ours(space) as searcher, diskann.DiskAnn(space) as peer:
        series = {"indexmill": searcher.search(index, setting), "diskann": peer.search()}
        earlier = (space.earlier("qps") or {}).get("tuning_rows")
        if earlier:
            tuned = {"indexmill": earlier["indexmill"], "diskann": earlier["DiskANN"]}
        else:
            tuned = {name: coarse_sweep(search) for name, search in series.items()}
        rounds = in_turns(series, {name: sizes_at(rows) for name, rows in tuned.items()}, ROUNDS)
    size = sizes_at(tuned["indexmill"], (RECALL,))[0]
    why_not = cpu_profile.why_not()
    return {
        "recalls": RECALLS,
        "queries": space.halves,
        "threads": THREADS,
        "order": ORDER,
        "setting": setting.to_dict(),
        "cpu_us": {name: medians_at(rounds, name, "cpu_us") for name in series},
        "user_us": {name: medians_at(rounds, name, "user_us") for name in series},
        "ratio": ratios_at(rounds, "indexmill", "diskann", "cpu_us"),
        "rounds": short(rounds),
        "profile": {"why_not": why_not} if why_not else cpu_profile.measure(space, index, setting, size),
    }
