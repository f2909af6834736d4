"""Part *plan*: what `indexmill plan` says beforehand of a grid of jobs, beside what they took."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.process import indexmill, told
from indexmill.jobs.bench.mill.build import AMPLE, Job, build
from indexmill.jobs.bench.mill.space import BUDGETS, Mill

#: Set, rows (all where None), budget, workers and parameters of each job.
GRID: tuple[tuple[str, int | None, str, int, dict[str, Any]], ...] = (
    ("sift1m", 100_000, AMPLE, 2, {}),
    ("sift1m", 300_000, AMPLE, 1, {}),
    ("sift1m", 300_000, AMPLE, 2, {"R": 64, "L": 100}),
    ("sift1m", 300_000, BUDGETS["sift1m"], 2, {"shard_vectors": 50_000}),
    ("generated", 500_000, "512MiB", 2, {"R": 24, "pq_bytes": 16}),
    ("sift1m", None, AMPLE, 2, {}),
    ("sift1m", None, AMPLE, 2, {"shard_vectors": 250_000}),
    ("generated", 1_000_000, "512MiB", 2, {}),
)
#: Figures of a plan, and what they are called in a build's.
_FIGURES = {"peak_memory_bytes": "peak_bytes", "peak_scratch_bytes": "scratch_bytes", "seconds": "wall_s"}


def measure(mill: Mill) -> dict[str, Any]:
    """Plan each job of `GRID` and build it at once; errors are predicted / measured - 1."""
    rows: list[dict[str, Any]] = []
    for number, (data, count, memory, workers, parameters) in enumerate(GRID):
        n_vectors = mill.sets[data].shape()[0]
        base = mill.first(data, count or n_vectors)
        job = Job(f"plan-{number}", base, memory, workers, parameters=parameters)
        planned = plan_of(job, mill)
        made = build(job, mill.out)
        errors = {name: planned[name] / made[measured] - 1 for name, measured in _FIGURES.items()}
        rows.append(
            {
                "data": data,
                "rows": min(count or n_vectors, n_vectors),
                "memory": memory,
                "workers": workers,
                "parameters": parameters,
                "planned": {name: planned[name] for name in (*_FIGURES, "shards")},
                "measured": {name: made[measured] for name, measured in _FIGURES.items()}
                | {"shards": made["shards"]},
                "error": errors,
            }
        )
    worst = {name: max(abs(row["error"][name]) for row in rows) for name in _FIGURES}
    return {"rows": rows, "worst": worst}


def plan_of(job: Job, mill: Mill) -> dict[str, Any]:
    """Ask for a plan; ``shards`` is their number."""
    planned = told(indexmill("plan", job.write(mill.out), json=True))
    return planned | {"shards": planned["shards"]["n"]}
