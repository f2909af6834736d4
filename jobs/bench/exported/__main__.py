"""Our index of sift1m, exported: what that costs, and how stock DiskANN searches it beside its own index.

OUT is a folder of the benchmark `sift1m`, whose index in star order and whose index of DiskANN are used; the latter is
made if it is not there. List sizes are chosen on the first half of the queries and measured on the second, in turns.
"""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.benchmark import Benchmark
from indexmill.jobs.bench.common.curves import in_turns, tuned_sizes
from indexmill.jobs.bench.common.intervals import medians_at, ratios_at, short
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import run_indexmill
from indexmill.jobs.bench.programs import diskann
from indexmill.jobs.bench.programs.ours import DISKANN_WIDTH
from indexmill.jobs.bench.programs.workspace import Workspace, workspace

ROUNDS = 3
TARGETS = ("diskann", "faiss", "jvector")
OWN, EXPORTED = "its own index", "the export"


def exports(space: Workspace) -> dict[str, Any]:
    """Export the index to each target; return its cost."""
    made = {}
    index = space.require(space.index("star"))
    for target in TARGETS:
        folder = space.out / f"exported-{target}"
        usage = run_indexmill(space.out / f"{folder.name}.log", "export", index, to=target, out=folder)
        written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        made[target] = {**usage.to_dict(), "written_bytes": written}
    return made


def searches(space: Workspace) -> dict[str, Any]:
    """Search both indexes with DiskANN, in turns."""
    diskann.ensure(space)
    export = space.out / "exported-diskann"
    with diskann.DiskAnn(space) as own, diskann.DiskAnn(space, index=export) as exported:
        series = {OWN: own.search(), EXPORTED: exported.search()}
        rounds = in_turns(series, tuned_sizes(series), ROUNDS)
    return {
        "queries": space.halves,
        "diskann_width": DISKANN_WIDTH,
        "counted": diskann.COUNTED,
        "figures": {
            name: {cost: medians_at(rounds, name, cost) for cost in ("qps", "pages_read")} for name in series
        },
        "qps_ratio": ratios_at(rounds, EXPORTED, OWN, "qps"),
        "rounds": short(rounds),
    }


BENCHMARK = Benchmark[Workspace](
    "exported",
    {"export": exports, "search": searches},
    space=workspace,
    parameters={"threads": THREADS},
    peers=diskann.PACKAGES,
    pages=(),
)

if __name__ == "__main__":
    BENCHMARK.main()
