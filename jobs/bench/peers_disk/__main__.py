"""Search one DiskANN index of sift1m with PipeANN and Starling, and ours of the same vectors, in turns.

    python -m indexmill.jobs.bench.peers_disk --sift1m DIR --out DIR --pipeann SOURCES --starling SOURCES [--keep]

Programs that are not given are left out; docs/benchmarks.md says how they are compiled. Indexes that are in OUT are
used, and those that it misses are built.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.benchmark import Benchmark, Run, Target
from indexmill.jobs.bench.common.curves import RECALLS, coarse_sweep, in_turns, sizes_at
from indexmill.jobs.bench.common.intervals import medians_at, ratios_at, short
from indexmill.jobs.bench.common.parameters import ORDER, THREADS
from indexmill.jobs.bench.peers_disk.engines import pipeann, starling
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.diskann import PACKAGES
from indexmill.jobs.bench.programs.workspace import workspace
from indexmill.jobs.bench.sift1m.qps import chosen_setting

ROUNDS = 5
#: Orders of ours: the default, and the one with the fewest reads.
ORDERS = (ORDER, "star")
_PROGRAMS = {"pipeann": pipeann, "starling": starling}


def measure(run: Run) -> dict[str, Any]:
    """Choose each side's list sizes on the first half of the queries, then measure rounds on the second, in turns."""
    space = workspace(run)
    diskann.ensure(space)
    given = {name: getattr(run.options, name) for name in _PROGRAMS}
    there = {name: Path(sources) for name, sources in given.items() if sources is not None}
    indexes = {order: ours.ensure(space, order) for order in ORDERS}
    setting = chosen_setting(space)
    with ours.Ours(space) as searcher, diskann.DiskAnn(space) as peer:
        series = {f"indexmill, {order}": searcher.search(index, setting) for order, index in indexes.items()}
        series["DiskANN"] = peer.search()
        for name, sources in there.items():
            series |= _PROGRAMS[name](space, sources)
        tuned = {name: coarse_sweep(search) for name, search in series.items()}
        rounds = in_turns(series, {name: sizes_at(rows) for name, rows in tuned.items()}, ROUNDS)
    return {
        "recalls": RECALLS,
        "queries": space.halves,
        "threads": THREADS,
        "setting": setting.to_dict(),
        "programs": sorted(there),
        **{cost: {name: medians_at(rounds, name, cost) for name in series} for cost in ("qps", "pages_read")},
        "ratio": {
            f"{mine}, {order}": {
                name: ratios_at(rounds, f"indexmill, {order}", name, cost)
                for name in series
                if not name.startswith("indexmill")
            }
            for mine, cost in (("qps", "qps"), ("reads", "pages_read"))
            for order in ORDERS
        },
        "rounds": short(rounds),
    }


BENCHMARK = Benchmark[Run](
    "peers_disk",
    {"search": measure},
    targets=(
        Target(
            "queries a second at 0.95, indexmill / PipeANN's pipeline",
            f"search.ratio['qps, {ORDER}']['PipeANN, pipeline']['0.95']", ">=", 2, "x",
        ),
        Target(
            "page reads at 0.95, indexmill / Starling",
            f"search.ratio['reads, {ORDER}']['Starling']['0.95']", "<=", 0.95, "x",
        ),
    ),
    parameters={"threads": THREADS},
    peers=PACKAGES,
    options={
        f"--{name}": {"metavar": "SOURCES", "help": f"folder of {name}'s compiled sources"} for name in _PROGRAMS
    },
)  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.main()
