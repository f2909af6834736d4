"""Hold what `indexmill plan` says beforehand against what builds take: memory, disk space and time.

    python -m indexmill.jobs.bench.plans --sift1m DIR --embed768 DIR --out DIR [--parts large] [--keep]

The part `updates` does so with updates of finished indexes. A plan is asked for right before its build, for a machine's
speed changes by the minute. The generated set is made by the first part that needs it.
"""

from __future__ import annotations

import shutil
from functools import partial
from typing import Any

from indexmill.jobs.bench.common.benchmark import Benchmark, Target
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import indexmill, told
from indexmill.jobs.bench.plans import updates
from indexmill.jobs.bench.plans.jobs import FIGURES, GRID, Planned, Sets, errors, load_kernels
from indexmill.jobs.bench.programs.job import Job, build

TARGETS = tuple(
    Target(f"plan of {what}, {name}, off by at most", f"{name}.worst.{figure}", "<=", limit)
    for name in (*GRID, "updates")
    for figure, (what, _, limit) in FIGURES.items()
)


def measure(sets: Sets, part: str) -> dict[str, Any]:
    """Plan each job of a part of `GRID` and build it at once; errors are predicted / measured - 1."""
    rows = []
    for number, planned in enumerate(GRID[part]):
        job = sets.job(planned, f"{part}-{number}")
        load_kernels(job, sets.out)
        rows.append(_row(sets, planned, job))
    worst = {name: max(abs(row["error"][name]) for row in rows) for name in FIGURES}
    return {"rows": rows, "worst": worst}


def _row(sets: Sets, planned: Planned, job: Job) -> dict[str, Any]:
    said = plan_of(job, sets)
    made = build(job, sets.out)
    shutil.rmtree(job.index(sets.out))
    n_vectors, dim = read_bin(sets.vectors(planned)).shape
    return {
        "data": planned.data,
        "rows": n_vectors,
        "dim": dim,
        "memory": planned.memory,
        "workers": planned.workers,
        "parameters": planned.parameters,
        "planned": {name: said[name] for name in (*FIGURES, "shards")},
        "measured": {name: made[key] for name, (_, key, _) in FIGURES.items()} | {"shards": made["shards"]},
        "told_peak_memory_bytes": made["told_peak_bytes"],
        "error": errors(said, made),
        "stages": {
            name: {"planned": stage["seconds"], "measured": made["stage_s"].get(name)}
            for name, stage in said["stages"].items()
        },
    }


def plan_of(job: Job, sets: Sets) -> dict[str, Any]:
    """Ask for a plan; ``shards`` is their number, 1 of kinds that have none."""
    said = told(indexmill("plan", job.write(sets.out), json=True))
    return said | {"shards": said.get("shards", {"n": 1})["n"]}


BENCHMARK = Benchmark[Sets](
    "plans",
    {**{part: partial(measure, part=part) for part in GRID}, "updates": updates.measure},
    TARGETS,
    sets=("sift1m", "embed768"),
    space=Sets,
    parameters={"threads": THREADS},
)

if __name__ == "__main__":
    BENCHMARK.main()
