"""DiskANN's index of sift1m, imported: what that costs, and how it is searched where it was and here.

OUT may be a folder of the benchmark `sift1m`, whose index of DiskANN is used, or made. List sizes are chosen on the
first half of the queries and measured on the second, in turns.
"""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.benchmark import Benchmark
from indexmill.jobs.bench.common.curves import Search, in_turns, tuned_sizes
from indexmill.jobs.bench.common.intervals import medians_at, ratios_at, short
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import run_indexmill
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.ours import DISKANN_WIDTH, Setting
from indexmill.jobs.bench.programs.workspace import Workspace, workspace

ROUNDS = 3
ORDERS = ("identity", "star")
#: As DiskANN searches, and as we do with as many reads in flight as pay on this device.
THEIR_SEARCH = Setting("beam", "medoid", DISKANN_WIDTH, inflight=1)
OUR_SEARCH = Setting("pipeline", "navigation", 16, inflight=16)
PEER, ALIKE = "diskannpy", "imported, searched as DiskANN does"
SERIES = {
    ALIKE: ("imported-identity", THEIR_SEARCH),
    "imported": ("imported-identity", OUR_SEARCH),
    "imported, star order": ("imported-star", OUR_SEARCH),
}


def imports(space: Workspace) -> dict[str, Any]:
    """Import the index in both orders; return its cost."""
    diskann.ensure(space)
    made = {}
    for order in ORDERS:
        out = space.index(f"imported-{order}")
        log, options = space.out / f"{out.name}.log", {"order": order, "dtype": "uint8", "workers": THREADS}
        usage = run_indexmill(log, "import", "diskann", space.diskann_index / "ann", out=out, **options)
        run, manifest = ours.run_facts(out), ours.manifest(out)
        made[order] = {
            **usage.to_dict(),
            "stage_s": run["seconds"],
            **{name: run[name] for name in ("peak_memory_bytes", "memory_budget_bytes")},
            "index_bytes": sum(file["bytes"] for file in manifest["files"]),
            **{name: manifest["input"]["imported"][name] for name in ("codes", "entries", "unreachable")},
        }
    return made


def searches(space: Workspace) -> dict[str, Any]:
    """Search DiskANN's index with DiskANN, and the imported ones, in turns."""
    with ours.Ours(space) as searcher, diskann.DiskAnn(space) as peer:
        series: dict[str, Search] = {PEER: peer.search()}
        series |= {name: searcher.search(*how) for name, how in SERIES.items()}
        sizes = tuned_sizes(series)
        rounds = in_turns(series, sizes | {ALIKE: sizes[PEER]}, ROUNDS)  # row by row the same
    return {
        "queries": space.halves,
        "settings": {name: how.to_dict() for name, (_, how) in SERIES.items()},
        "diskann_width": DISKANN_WIDTH,
        "figures": {
            name: {cost: medians_at(rounds, name, cost) for cost in ("qps", "pages_read")} for name in series
        },
        "qps_ratio": {name: ratios_at(rounds, name, PEER, "qps") for name in series},
        "rounds": short(rounds),
    }


BENCHMARK = Benchmark[Workspace](
    "imported",
    {"import": imports, "search": searches},
    space=workspace,
    parameters={"threads": THREADS},
    peers=diskann.PACKAGES,
    pages=(),
)

if __name__ == "__main__":
    BENCHMARK.main()
