"""Part *faults*: share of reads that miss a page cache which holds a few percent of hash tables (section 6.5).

A mapped index is searched in a control group whose page cache is limited; the kernel reads one page a fault, since the
map has random advice. The first half of the queries fills the cache, faults are counted over the second half.
"""

from __future__ import annotations

import sys
from typing import Any

import indexmill
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.cgroup import run_lowered
from indexmill.jobs.bench.common.disk import drop_cache
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, SEED, THREADS
from indexmill.jobs.bench.common.process import module
from indexmill.jobs.bench.counts.sets import given
from indexmill.jobs.bench.lsh.space import formula_candidates
from indexmill.jobs.bench.programs import ours

NAME = "sift1m"
#: Share of the tables that the page cache holds, without the slack of `run_lowered`: the paper's 32 GB of 530 GB, and
#: a quarter.
CACHE_SHARES = (32 / 530, 0.25)


def measure(run: Run) -> dict[str, Any]:
    """Build tables with the radii of the formula, and count faults and reads of mapped searches."""
    case = given(run, NAME)
    index = case.out / "mapped.index"
    if not case.is_built(index):
        indexmill.build(
            case.data.base, index, kind="lsh", candidates=formula_candidates(case.data.shape()[0], {}), seed=SEED,
            memory=BUILD_MEMORY, workers=THREADS, force=True,
        )  # fmt: skip
    tables = sum(file["bytes"] for file in ours.manifest(index)["files"] if file["name"] != "vectors.imx")
    counted = {}
    for share in CACHE_SHARES:
        drop_cache(index)
        command = module(sys.executable, "counts.faults_child", case.data.folder, index)
        counted[f"{share:.2f}"] = run_lowered(command, int(share * tables))
    return {"n_vectors": case.data.shape()[0], "table_bytes": tables, "cache": counted}
