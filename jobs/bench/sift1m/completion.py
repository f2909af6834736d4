"""Part *completion*: AIO-ANN's figures 5 (recall and queries a second, four threads) and 2 (how long reads take)."""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.jobs.bench.common import curves
from indexmill.jobs.bench.common.curves import Row, Search, in_turns, tuned_sizes
from indexmill.jobs.bench.common.intervals import medians_at, ratios_at, short
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.ours import DISKANN_WIDTH, Setting
from indexmill.jobs.bench.programs.workspace import Workspace

#: As in the paper.
THREADS = 4
POINTS = (0.83, 0.87, 0.91, 0.94, 0.96, 0.975, 0.988)
#: Recalls of the text's figures; the paper says 20 to 30% from 90% to 95%.
RECALLS = (0.90, 0.95)
ROUNDS = 3
#: One query a thread, in the order that a plain graph index has, from the medoid: only the policy differs.
SAME: dict[str, Any] = {"entry": "medoid", "beam_width": DISKANN_WIDTH, "threads": THREADS, "inflight": 1}
#: Threads of the same search on both sides: as many as cores, and twice as many.
ALIKE_THREADS = (2, 4)
#: Reads in flight at which their times are measured.
DEPTHS = (1, 8, 32, 128)
SECONDS = 2.0
#: Percentiles that are kept of read times, beside the share of reads below the paper's 100 microseconds.
PERCENTILES = (0, 10, 50, 90, 95, 98.5, 99, 99.5, 99.9, 99.95, 99.99, 100)


def measure(space: Workspace) -> dict[str, Any]:
    """Sweep DiskANN, our beam search and completion-driven search in turns; then measure single reads."""
    diskann.ensure(space)
    identity, star = ours.ensure(space, "identity"), ours.ensure(space, "star")
    with ours.Ours(space) as searcher, diskann.DiskAnn(space, THREADS) as peer:
        series: dict[str, Search] = {
            "DiskANN": peer.search(),
            "beam": searcher.search(identity, Setting("beam", **SAME)),
            "completion": searcher.search(identity, Setting("completion", **SAME)),
            "pipeline": searcher.search(star, Setting(threads=THREADS)),
        }
        rounds = in_turns(series, tuned_sizes(series, POINTS), ROUNDS)
    return {
        "recalls": RECALLS,
        "queries": space.halves,
        "threads": THREADS,
        "series": {
            "DiskANN": {"index": "DiskANN", "beam_width": DISKANN_WIDTH},
            "beam": {"index": identity, "policy": "beam", **SAME},
            "completion": {"index": identity, "policy": "completion", **SAME},
            "pipeline": {"index": star, **Setting(threads=THREADS).to_dict()},
        },
        "curves": {name: _curve([done[name] for done in rounds]) for name in series},
        "gain": {
            of: {
                other: ratios_at(rounds, "completion", other, "qps", RECALLS, of)
                for other in ("beam", "DiskANN")
            }
            for of in ("recall", "recall1")
        },
        "rounds": short(rounds),
        "reads": read_times(space),
    }


def alike(space: Workspace) -> dict[str, Any]:
    """Search alike on both sides: with a thread for each core, and with two, one query a thread, in turns.

    A thread of ours that has one query watches for its reads and keeps a core busy meanwhile. That pays where each
    thread has a core of its own, and costs where threads, or other programs, share one.
    """
    diskann.ensure(space)
    identity = ours.ensure(space, "identity")
    found: dict[str, Any] = {}
    for threads in ALIKE_THREADS:
        with ours.Ours(space) as searcher, diskann.DiskAnn(space, threads) as peer:
            how = Setting("beam", **SAME | {"threads": threads})
            series: dict[str, Search] = {"diskann": peer.search(), "beam": searcher.search(identity, how)}
            rounds = in_turns(series, tuned_sizes(series), ROUNDS)
        found[str(threads)] = {
            **{
                cost: {name: medians_at(rounds, name, cost) for name in series} | {
                    "ratio": ratios_at(rounds, "beam", "diskann", cost)
                }
                for cost in ("qps", "cpu_us", "pages_read")
            },
            "rounds": short(rounds),
        }  # fmt: skip
    return {"recalls": curves.RECALLS, "queries": space.halves, "beam_width": DISKANN_WIDTH, "threads": found}


def _curve(rounds: list[list[Row]]) -> list[dict[str, Any]]:
    """Medians over the rounds, a row for each list size."""
    names = ("recall", "recall1", "qps")
    return [
        {"L": rows[0]["L"], **{name: float(np.median([row[name] for row in rows])) for name in names}}
        for rows in zip(*rounds, strict=True)
    ]


def read_times(space: Workspace) -> list[dict[str, Any]]:
    """Times of random reads of the index's pages past the page cache, a row for each depth."""
    from indexmill.reader import native

    path = str(space.index("star") / "graph.imx")
    found = []
    for depth in DEPTHS:
        threads = min(2, depth)
        done = native.measure_device(path, 4096, depth, threads, SECONDS, depth)
        times = done["latencies_us"].astype(np.float64)
        found.append(
            {
                "depth": depth,
                "threads": threads,
                "reads": int(done["reads"]),
                "reads_per_s": round(done["reads"] / done["elapsed_s"]),
                "below_100_us": float((times < 100).mean()),
                "percentiles_us": {str(p): round(float(np.percentile(times, p)), 1) for p in PERCENTILES},
                "curve": _quantiles(times),
            }
        )
    return found


def _quantiles(times: Any) -> list[list[float]]:
    """Pairs (share of the reads, microseconds), denser towards the tail, to draw the distribution from."""
    shares = np.unique(np.concatenate([np.linspace(0, 0.9, 31), 1 - np.logspace(-1, -5, 41), [1.0]]))
    return [
        [round(float(s), 6), round(float(t), 1)]
        for s, t in zip(shares, np.quantile(times, shares), strict=True)
    ]
