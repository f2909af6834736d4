"""Part *cpu*: CPU time a query at equal recall, of both sides, and where ours goes."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.curves import (
    RECALL,
    RECALLS,
    Row,
    coarse_sweep,
    key,
    ratio,
    sizes_at,
    summaries,
    sweep,
    value_at,
)
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.workspace import THREADS, Workspace
from indexmill.jobs.bench.sift1m import cpu_profile
from indexmill.jobs.bench.sift1m.qps import ORDER, chosen_setting, tuning_rows

ROUNDS = 3


def measure(space: Workspace) -> dict[str, Any]:
    """User and system time of the searching process around its searches (getrusage), threads and all."""
    diskann.ensure(space)
    index, setting = ours.ensure(space, ORDER), chosen_setting(space)
    rounds: list[dict[str, list[Row]]] = []
    with ours.Ours(space) as searcher, diskann.DiskAnn(space) as peer:
        search, their_search = searcher.search(index, setting), peer.search()
        tuned, their_tuned = tuning_rows(space) or (coarse_sweep(search), coarse_sweep(their_search))
        mine, theirs = sizes_at(tuned), sizes_at(their_tuned)
        for _ in range(ROUNDS):
            rounds.append({"indexmill": sweep(search, mine), "diskann": sweep(their_search, theirs)})
    size = sizes_at(tuned, (RECALL,))[0]
    why_not = cpu_profile.why_not()
    return {
        "recalls": RECALLS,
        "queries": space.halves,
        "threads": THREADS,
        "order": ORDER,
        "setting": setting.to_dict(),
        "cpu_us": {
            name: {
                key(r): over_rounds([value_at(done[name], "cpu_us", r) for done in rounds]) for r in RECALLS
            }
            for name in ("indexmill", "diskann")
        },
        "ratio": {key(r): over_rounds([_ratio(done, r) for done in rounds]) for r in RECALLS},
        "rounds": [{name: summaries(rows) for name, rows in done.items()} for done in rounds],
        "profile": {"why_not": why_not} if why_not else cpu_profile.measure(space, index, setting, size),
    }


def _ratio(done: dict[str, list[Row]], recall: float) -> float | None:
    return ratio(*(value_at(done[side], "cpu_us", recall) for side in ("indexmill", "diskann")))
