"""Part *build*: insertions of an object into a table that a build makes a second, on two workers, from start to end."""

from __future__ import annotations

import shutil
from typing import Any

from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, THREADS
from indexmill.jobs.bench.lsh.space import Shape, Space, build_cost, index_facts

NAME = "sift1m"
ROUNDS = 2
#: Stages that do nothing else than fill tables.
STAGES = ("hash", "chain", "emit")


def measure(space: Space) -> dict[str, Any]:
    """Build the set anew a few times; the figures are of the fastest, which was disturbed least."""
    runs = []
    for _ in range(ROUNDS):
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
    return {
        "workers": THREADS,
        "memory": BUILD_MEMORY,
        "runs": runs,
        "per_s": best["per_s"],
        "tables_per_s": best["tables_per_s"],
    }
