"""Part *faults*: share of pages read that miss a page cache which holds a few percent of hash tables (section 6.5).

A mapped index is searched in a control group whose page cache is limited; the kernel reads one page a fault, since the
map has random advice. The first half of the queries fills the cache, faults are counted over the second half. Reads are
of pointers to blocks and of blocks: how much of either file the cache then holds tells which of them fault.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import indexmill
from indexmill.jobs.bench.common import generate
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.cgroup import run_lowered
from indexmill.jobs.bench.common.disk import drop_cache
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, SEED, THREADS
from indexmill.jobs.bench.common.process import module
from indexmill.jobs.bench.counts.sets import Case, generated, given
from indexmill.jobs.bench.lsh.beyond import LEANER
from indexmill.jobs.bench.lsh.space import formula_candidates
from indexmill.jobs.bench.programs import ours

#: Generated vectors, and queries of theirs; of a trial with --rows N the same share of N for each million.
VECTORS, QUERIES = 10_000_000, 10_000
#: Share of the tables that the page cache holds, without the slack of `run_lowered`: the paper's 32 GB of 530 GB, and
#: a quarter.
CACHE_SHARES = (32 / 530, 0.25)


def measure(run: Run) -> dict[str, Any]:
    """Build tables with the radii of the formula, and count faults and reads of mapped searches."""
    sift = given(run, "sift1m")
    n, n_queries = VECTORS, QUERIES
    if run.rows:
        n, n_queries = (count * run.rows // 1_000_000 for count in (VECTORS, QUERIES))
    large = generated(run, n)
    queries = large.out / "more-queries.u8bin"
    generate.write(queries, generate.Manifold(SEED), generate.QUERIES, n_queries, THREADS)
    return {
        "sets": {
            sift.name: _counted(sift, sift.data.query, {}),
            large.name: _counted(large, queries, LEANER.options),
        }
    }


def _counted(case: Case, queries: Path, options: dict[str, Any]) -> dict[str, Any]:
    index, n = case.out / "mapped.index", case.data.shape()[0]
    indexmill.build(
        case.data.base, index, kind="lsh", candidates=formula_candidates(n, options), seed=SEED,
        memory=BUILD_MEMORY, workers=THREADS, force=True, **options,
    )  # fmt: skip
    files = {file["name"]: file["bytes"] for file in ours.manifest(index)["files"]}
    tables = sum(n_bytes for name, n_bytes in files.items() if name != "vectors.imx")
    counted = {}
    for share in CACHE_SHARES:
        drop_cache(index)
        command = module(sys.executable, "counts.faults_child", queries, index)
        counted[f"{share:.2f}"] = run_lowered(command, int(share * tables))
    shutil.rmtree(index)
    return {"n_vectors": n, "table_bytes": tables, "pointer_bytes": files["tables.imx"], "cache": counted}
