"""Measure builds within a memory budget, in shards and on executors.

The second set is generated, with its truth, by the first run.
"""

from __future__ import annotations

from indexmill.jobs.bench.common.benchmark import Benchmark, Part, Target
from indexmill.jobs.bench.common.dataset import facts
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.mill import budget, ratios
from indexmill.jobs.bench.mill.space import BUDGETS, Mill, make_space


def _per_set(what: str, place: str, relation: str, limit: float, unit: str = "") -> list[Target]:
    part, figure = place.split(".")
    return [
        Target(f"{what}, {name}", f"{part}.sets.{name}.{figure}", relation, limit, unit) for name in BUDGETS
    ]


TARGETS = (
    Target("local intrinsic dimension, generated / sift1m, off 1 by", "(data.ratio.lid - 1)|abs", "<=", 0.1),
    Target("relative contrast, generated / sift1m, off 1 by", "(data.ratio.contrast - 1)|abs", "<=", 0.1),
    *_per_set("peak memory / budget", "budget.to_budget", "<=", 1.05, "x"),
    *_per_set("recall lost to the build in one piece", "budget.points_lost", "<=", 0.5, "points"),
    *_per_set("peak scratch / (2 x input + 2 x output)", "budget.to_scratch_bound", "<=", 1, "x"),
    *_per_set("completed under the kernel's limit (1: yes)", "limit.completed", ">=", 1),
    Target("time in shards / in one piece, sift1m", "shards.ratio", "<=", 1.6, "x"),
    Target("time with 1 worker / 2 workers, sift1m", "workers.speedup", ">=", 1.7, "x"),
    Target("time on Ray without its start-up / local", "ray.ratio", "<=", 1.1, "x"),
)


def _warm(part: Part[Mill]) -> Part[Mill]:
    """Let kernels be compiled before a part, which happens once an installation and not with every build."""

    def measure(mill: Mill) -> dict[str, object]:
        mill.warm_up()
        return part(mill)

    return measure


BENCHMARK = Benchmark[Mill](
    "mill",
    {
        "data": budget.data,
        "oneshot": _warm(budget.oneshot),
        "budget": _warm(budget.budget),
        "limit": _warm(budget.limit),
        "shards": _warm(ratios.shards),
        "workers": _warm(ratios.workers),
        "ray": _warm(ratios.ray),
    },
    TARGETS,
    space=make_space,
    data=lambda mill: [facts(name, data) for name, data in mill.sets.items()],
    parameters={"threads": THREADS, "budgets": BUDGETS},
)

if __name__ == "__main__":
    BENCHMARK.main()
