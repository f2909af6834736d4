"""Part *steady*: how much queries a second differ between runs, of DiskANN and of completion-driven search.

Queries are those of the set, in its order; searches are those of Figure 5, where only the algorithm differs.
"""

from __future__ import annotations

from statistics import mean, median, stdev
from typing import Any

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import Search, coarse_sweep, sizes_at
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.ours import Setting
from indexmill.jobs.bench.programs.workspace import workspace
from indexmill.jobs.bench.sift1m.completion import ALIKE_THREADS, SAME

ROUNDS = 20
#: Recall on the tuning queries of the list size that is measured.
RECALL = 0.95


def measure(run: Run) -> dict[str, Any]:
    """Search many times in turns with one list size each: with a thread for each core, and with two."""
    space = workspace(run)
    diskann.ensure(space)
    identity = ours.ensure(space, "identity")
    found = {}
    for threads in ALIKE_THREADS:
        with ours.Ours(space) as searcher, diskann.DiskAnn(space, threads) as peer:
            same = SAME | {"threads": threads}
            series: dict[str, Search] = {
                "DiskANN": peer.search(),
                "beam": searcher.search(identity, Setting("beam", **same)),
                "completion": searcher.search(identity, Setting("completion", **same)),
            }
            sizes = {name: sizes_at(coarse_sweep(search), (RECALL,))[0] for name, search in series.items()}
            rates: dict[str, list[float]] = {name: [] for name in series}
            for _ in range(1 + max(2, run.options.rounds or ROUNDS)):  # the first is not counted
                for name, search in series.items():
                    rates[name].append(search(sizes[name], "report")["qps"])
        found[str(threads)] = {name: {"L": sizes[name], **spread(some[1:])} for name, some in rates.items()}
    return {"recall": RECALL, "queries": space.halves, "threads": found}


def spread(rates: list[float]) -> dict[str, Any]:
    """Return the median of queries a second, and how far runs lie apart: standard deviation and range over the mean."""
    middle = mean(rates)
    return {
        "qps": median(rates),
        "deviation": stdev(rates) / middle,
        "range": (max(rates) - min(rates)) / middle,
        "rounds": [round(rate, 1) for rate in rates],
    }
