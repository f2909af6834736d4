"""Parts *tables-SET*, what hash tables cost at the overall ratio that is compared, and *build*, how fast they fill."""

from __future__ import annotations

import shutil
from statistics import median
from typing import Any

from indexmill.jobs.bench.common.curves import summaries
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, THREADS
from indexmill.jobs.bench.lsh.space import SHAPES, STORAGE, Searcher, Shape, Space, build_cost, index_facts
from indexmill.jobs.bench.lsh.tune import KS, tune_candidates

ROUNDS = 3
#: Queries that a thread interleaves on storage.
INFLIGHT = 16


def measure(name: str, space: Space) -> dict[str, Any]:
    """Build, tune S in memory for each k, and search the other queries in memory and from storage on one thread."""
    return {"indexes": {shape.name: _shape(name, space, shape) for shape in SHAPES.values()}}


def _shape(name: str, space: Space, shape: Shape) -> dict[str, Any]:
    data = space.data(name)
    index = space.ensure(name, data, shape)
    found: dict[str, Any] = {"index": index_facts(index), "build": build_cost(index)}
    memory = {"index": str(index), "engine": "memory"}
    with Searcher(data, space.out / f"search-{name}.log") as searcher:
        for k in KS:
            tuned = tune_candidates(
                lambda search, k: searcher.ask("lsh", memory, search, k, "tune"), data.shape()[0], k
            )
            found[f"k{k}"] = tuned | {"memory": report(searcher, memory, tuned["candidates"], k)}
        stored = {"index": str(index), "engine": STORAGE}
        for k in KS:
            found[f"k{k}"]["storage"] = report(
                searcher, stored, found[f"k{k}"]["candidates"], k, inflight=INFLIGHT
            )
    return found


def report(
    searcher: Searcher, opened: dict[str, Any], candidates: int | None, k: int, **others: Any
) -> dict[str, Any] | None:
    """Search the reported queries in a few rounds; the row of the median speed, or None without S."""
    if candidates is None:
        return None
    search = {"candidates": candidates, "threads": 1, **others}
    rows = [searcher.ask("lsh", opened, search, k, "report") for _ in range(ROUNDS + 1)][1:]
    middle = median(row["qps"] for row in rows)
    return summaries([next(row for row in rows if row["qps"] == middle)])[0]


NAME = "sift1m"
BUILDS = 2
#: Stages that do nothing else than fill tables.
STAGES = ("hash", "chain", "emit")


def insertions(space: Space) -> dict[str, Any]:
    """Build the set anew a few times; the figures are of the fastest, which was disturbed least."""
    runs = []
    for _ in range(BUILDS):
        index = space.ensure(NAME, space.data(NAME), Shape("timed"))
        facts, cost = index_facts(index), build_cost(index)
        insertions = facts["n_vectors"] * facts["n_tables"] * facts["n_radii"]
        runs.append(
            {
                **cost,
                "insertions": insertions,
                "per_s": insertions / cost["wall_s"],
                "tables_per_s": insertions / sum(cost["stage_s"][stage] for stage in STAGES),
            }
        )
        shutil.rmtree(index)
        index.with_suffix(".build.json").unlink()
    best = max(runs, key=lambda run: float(run["per_s"]))
    rates = {name: best[name] for name in ("per_s", "tables_per_s")}
    return {"workers": THREADS, "memory": BUILD_MEMORY, "runs": runs, **rates}
