"""The sets of the benchmark of budgets, and where it keeps what it builds."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import generate
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, beginning, write_truth
from indexmill.jobs.bench.common.parameters import SEED
from indexmill.jobs.bench.programs.job import Job, build

#: Budgets of the sets.
BUDGETS = {"sift1m": "768MiB", "generated": "1GiB"}
GENERATED_ROWS, GENERATED_QUERIES = 3_000_000, 2000
_WARM_UP_ROWS = 2000


@dataclass
class Mill:
    """The run, and the sets of `BUDGETS`: parts work on them."""

    run: Run
    sets: dict[str, Dataset]
    _warm: bool = field(default=False, init=False)

    @property
    def out(self) -> Path:
        """Folder of the indexes."""
        return self.run.out

    def job(self, data: str, kind: str, **others: Any) -> Job:
        """Return a job of a set; its index is named ``SET-KIND``."""
        return Job(f"{data}-{kind}", self.sets[data].base, **others)

    def first(self, data: str, rows: int) -> Path:
        """Return a file of the first vectors of a set: the set's own if it has no more."""
        return beginning(self.sets[data].base, rows, self.out / "data", data)

    def warm_up(self) -> None:
        """Build in one piece and in shards, once."""
        if not self._warm:
            base = self.first("sift1m", _WARM_UP_ROWS)
            build(Job("warm-up", base), self.out)
            build(Job("warm-up", base, parameters={"shard_vectors": _WARM_UP_ROWS // 2}), self.out)
            self._warm = True


def make_space(run: Run) -> Mill:
    """Generate the set that is generated unless it is there."""
    generated = Dataset(run.out / "generated")
    if not generated.truth.exists():
        print("generating, and computing the truth ...", file=sys.stderr, flush=True)
        generate.generate(generated.folder, run.rows or GENERATED_ROWS, GENERATED_QUERIES, SEED)
        write_truth(generated)
    return Mill(run, {**run.sets, "generated": generated})
