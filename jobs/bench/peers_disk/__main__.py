"""Search one DiskANN index of sift1m with PipeANN and Starling, and ours of the same vectors, in turns.

    python -m indexmill.jobs.bench.peers_disk --sift1m DIR --out DIR --pipeann SOURCES --starling SOURCES [--keep]

Programs that are not given are left out; docs/benchmarks.md says how they are compiled. Indexes that are in OUT are
used, and those that it misses are built.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from indexmill.jobs.bench.common.benchmark import PAGE, Benchmark, Page, Run, Target
from indexmill.jobs.bench.common.curves import (
    COARSE_SIZES,
    POINTS,
    RECALLS,
    Row,
    Search,
    coarse_sweep,
    sizes_at,
    summaries,
    sweep,
    value_at,
)
from indexmill.jobs.bench.common.intervals import medians_at, ratios_at, short
from indexmill.jobs.bench.common.parameters import ORDER, THREADS
from indexmill.jobs.bench.peers_disk.engines import (
    PROGRAMS,
    Settings,
    Sweep,
    prepared,
    version_of,
)
from indexmill.jobs.bench.programs import diskann, ours, rates
from indexmill.jobs.bench.programs.diskann import PACKAGES
from indexmill.jobs.bench.programs.ours import Setting
from indexmill.jobs.bench.programs.workspace import Workspace, workspace

ROUNDS = 5
STARLING, STARLING_FEWEST = "Starling", "Starling, fewest reads"
#: List sizes of a peer's first sweep, which it searches all in one process.
SIZES = COARSE_SIZES[:-1]
OURS, SINGLE, OURS_FEWEST = "indexmill", "indexmill, one query a thread", "indexmill, fewest reads"
DISKANN = "DiskANN"
#: Reads in flight from which our setting with the fewest reads is chosen; the least is also Starling's.
NARROW = (2, 4)


def given(run: Run) -> dict[str, Path]:
    """Return the folders of the programs that are measured."""
    found = {name: getattr(run.options, name) for name in PROGRAMS}
    return {name: Path(sources).resolve() for name, sources in found.items() if sources is not None}


def indexes(run: Run) -> dict[str, Any]:
    """Build the indexes that OUT lacks; return what the programs were compiled from."""
    space = workspace(run)
    diskann.ensure(space)
    ours.ensure(space, ORDER)
    for name, sources in given(run).items():
        prepared(space, name, sources)
    return {"sources": {name: version_of(sources) for name, sources in given(run).items()}}


def tune(run: Run) -> dict[str, Any]:
    """Choose the fastest setting at recall 0.95 and the list sizes of each side on the first half of the queries."""
    space = workspace(run)
    index = ours.ensure(space, ORDER)
    tuned: dict[str, list[Row]] = {}
    chosen: dict[str, list[str]] = {}
    tried: dict[str, list[Row]] = {}
    with ours.Ours(space) as searcher, diskann.DiskAnn(space) as peer:
        setting, tuned[OURS], grid = rates.choose(searcher, index)
        frugal = {
            str(i): Setting(policy, entry, width)
            for i, (policy, entry, width) in enumerate(product(rates.POLICIES, rates.ENTRIES, NARROW))
        }
        sweeps = {how: coarse_sweep(searcher.search(index, one)) for how, one in frugal.items()}
        best = fewest(costs_of(sweeps))
        tuned[OURS_FEWEST] = sweeps[best]
        tuned[DISKANN] = coarse_sweep(peer.search())
    for name, settings in _peers(run, space).items():
        sweeps = {how: tuning_sweep(sweep) for how, sweep in settings.items()}
        tried[name] = costs_of(sweeps)
        series = {name: fastest(tried[name])}
        if name == STARLING:
            series[STARLING_FEWEST] = fewest(tried[name])
        for series_name, how in series.items():
            chosen[series_name], tuned[series_name] = [name, how], sweeps[how]
    return {
        "setting": setting.to_dict(),
        "setting_fewest": frugal[best].to_dict(),
        "grid": grid,
        "chosen": chosen,
        "tried": tried,
        "sizes": {name: sizes_at(rows) for name, rows in tuned.items()},
        "rows": {name: summaries(rows) for name, rows in tuned.items()},
    }


def costs_of(sweeps: dict[str, list[Row]]) -> list[Row]:
    """Return the costs at recall 0.95 of each setting; None where it was not reached."""
    return [
        {"setting": how, "qps": value_at(rows, "qps"), "reads": value_at(rows, "pages_read")}
        for how, rows in sweeps.items()
    ]


def fastest(tried: list[Row]) -> str:
    """Return the setting with the most queries a second; the first of those that are equal."""
    return str(max(tried, key=lambda one: one["qps"] or 0.0)["setting"])


def fewest(tried: list[Row]) -> str:
    """Return the setting with the fewest reads; the first of those that are equal."""
    return str(min(tried, key=lambda one: one["reads"] or math.inf)["setting"])


def measure(run: Run) -> dict[str, Any]:
    """Search the second half of the queries in rounds, each side in turn."""
    space = workspace(run)
    earlier = run.earlier("tune")
    setting = Setting(**earlier["setting"])
    index = ours.ensure(space, ORDER)
    with ours.Ours(space) as searcher, diskann.DiskAnn(space) as peer:
        series: dict[str, Sweep] = {
            OURS: _sweep(searcher.search(index, setting)),
            SINGLE: _sweep(searcher.search(index, replace(setting, inflight=1))),
            OURS_FEWEST: _sweep(searcher.search(index, Setting(**earlier["setting_fewest"]))),
            DISKANN: _sweep(peer.search()),
        }
        peers = _peers(run, space)
        chosen = earlier["chosen"].items()
        series |= {name: peers[program][how] for name, (program, how) in chosen if program in peers}
        sizes = {name: earlier["sizes"][OURS if name == SINGLE else name] for name in series}
        rounds = [
            {name: sweep_of(sizes[name], "report") for name, sweep_of in series.items()}
            for _ in range(ROUNDS)
        ]
    costs = {"qps": "qps", "reads": "pages_read"}
    return {
        "recalls": RECALLS,
        "queries": space.halves,
        "threads": THREADS,
        **{kind: {name: medians_at(rounds, name, cost) for name in series} for kind, cost in costs.items()},
        "ratio": {
            kind: {name: ratios_at(rounds, OURS, name, cost) for name in series if name != OURS}
            for kind, cost in costs.items()
        },
        "ratio_fewest": ratios_at(rounds, OURS_FEWEST, STARLING_FEWEST, "pages_read")
        if STARLING_FEWEST in series
        else None,
        "rounds": short(rounds),
    }


def _sweep(search: Search) -> Sweep:
    """Return the sweep of a search that answers one list size at a time."""
    return lambda sizes, half: sweep(search, sizes)


def tuning_sweep(sweep_of: Sweep) -> list[Row]:
    """Sweep the tuning queries up to the highest recall of interest; no rows if that takes too long."""
    try:
        rows = sweep_of(SIZES, "tune")
    except TimeoutExpired:
        return []
    enough = next((i for i, row in enumerate(rows) if i and row["recall"] >= POINTS[-1]), len(rows) - 1)
    return rows[: enough + 1]


def _peers(run: Run, space: Workspace) -> dict[str, Settings]:
    """Return the searches of the programs that were given, by name and setting."""
    found: dict[str, Settings] = {}
    for name, sources in given(run).items():
        found |= PROGRAMS[name].searches(space, sources, prepared(space, name, sources))
    return found


BENCHMARK = Benchmark[Run](
    "peers_disk",
    {"indexes": indexes, "tune": tune, "search": measure},
    targets=(
        *(
            Target(
                f"queries a second at 0.95, indexmill / {name}", f"search.ratio.qps['{name}']['0.95']", ">=", 2, "x"
            )
            for name in ("PipeANN, pipeline", "PipeANN, coroutines")
        ),
        Target("reads at 0.95, indexmill / Starling", "search.ratio.reads['Starling']['0.95']", "<=", 0.95, "x"),
        Target("the same, both by the setting with the fewest reads", "search.ratio_fewest['0.95']", "<=", 0.95, "x"),
    ),
    parameters={"threads": THREADS},
    peers=PACKAGES,
    pages=(Page("tables", PAGE, "peers_disk"), Page("readme", "README.md", "peers")),
    options={
        f"--{name}": {"metavar": "SOURCES", "help": f"checkout of {name}'s sources, compiled"} for name in PROGRAMS
    },
)  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.main()
