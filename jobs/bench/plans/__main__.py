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
from indexmill.jobs.bench.plans import updates
from indexmill.jobs.bench.plans.jobs import GRID, Planned, Sets
from indexmill.jobs.bench.programs import plan
from indexmill.jobs.bench.programs.job import Job, build


def _targets(part: str) -> list[Target]:
    return plan.targets(part, lambda figure: f"{part}.worst.{figure}")


TARGETS = tuple(target for part in (*GRID, "updates") for target in _targets(part))


def measure(sets: Sets, part: str) -> dict[str, Any]:
    """Plan each job of a part of `GRID` and build it at once; errors are predicted / measured - 1."""
    rows = []
    for number, wanted in enumerate(GRID[part]):
        job = sets.job(wanted, f"{part}-{number}")
        plan.load_kernels(job, sets.out)
        rows.append(_row(sets, wanted, job))
    return {"rows": rows, "worst": plan.worst(rows)}


def _row(sets: Sets, wanted: Planned, job: Job) -> dict[str, Any]:
    said = plan.of_job(job.write(sets.out))
    made = build(job, sets.out)
    shutil.rmtree(job.index(sets.out))
    n_vectors, dim = read_bin(sets.vectors(wanted)).shape
    return {
        "data": wanted.data,
        "rows": n_vectors,
        "dim": dim,
        "memory": wanted.memory,
        "workers": wanted.workers,
        "parameters": wanted.parameters,
        "planned": plan.figures(said) | {"shards": planned_shards(said)},
        "measured": plan.measured(made) | {"shards": made["shards"]},
        "told_peak_memory_bytes": made["told_peak_bytes"],
        "error": plan.errors(said, made),
        "stages": {
            name: {"planned": seconds, "measured": made["stage_s"].get(name)}
            for name, seconds in plan.stage_seconds(said).items()
        },
    }


def planned_shards(said: dict[str, Any]) -> int:
    """Return the shards of a plan, 1 of kinds that have none."""
    n: int = said.get("shards", {"n": 1})["n"]
    return n


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
