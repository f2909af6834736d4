"""Parts that build: *build* beside DiskANN, *quality* of both graphs, *compactness* of large nodes, and *startup*."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from indexmill.jobs.bench.common.curves import RECALL, ratio, value_at
from indexmill.jobs.bench.common.dataset import read_bin, touch, write_beginning, write_bin
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, MAX_DEGREE, ORDER, PQ_BYTES, THREADS
from indexmill.jobs.bench.programs import diskann, graph_quality, ours
from indexmill.jobs.bench.programs.workspace import Workspace

#: Rows of the build that compiles the kernels beforehand: that happens once, not with every build.
_WARM_UP_ROWS = 2000
#: Times that a start is timed, after one that fills the page cache.
RUNS = 5


def measure(space: Workspace) -> dict[str, Any]:
    """Build with DiskANN, then with indexmill, from an empty work folder each; and in other orders, for searches."""
    _warm_up(space)
    touch(space.data.base)
    theirs = diskann.build(space)
    touch(space.data.base)
    index, work = space.index(ORDER), space.out / "work"
    usage = ours.build_fresh(space, space.data.base, index, ORDER, work).to_dict()
    made = ours.manifest(index)
    mine = {
        **usage,
        "stage_s": ours.stage_seconds(index),
        "pq_bytes": PQ_BYTES,
        "graph_file_bytes": (index / "graph.imx").stat().st_size,
        **{name: made[name] for name in ("layout", "graph", "certificate")},
    }
    for order in ("identity", "star"):
        ours.build(space, space.data.base, space.index(order), ours.Shape(order), work)
    return {
        "max_degree": MAX_DEGREE,
        "threads": THREADS,
        "memory_budget": BUILD_MEMORY,
        "diskann": theirs,
        "indexmill": mine,
        "wall_ratio": ratio(mine["wall_s"], theirs["wall_s"]),
        "cpu_ratio": ratio(mine["cpu_s"], theirs["cpu_s"]),
    }


def _warm_up(space: Workspace) -> None:
    base, index = write_beginning(space.data, _WARM_UP_ROWS, space.out), space.out / "indexmill-warm-up"
    ours.build_fresh(space, base, index, ORDER, space.out / "warm-up-work")
    base.unlink()
    shutil.rmtree(index)
    shutil.rmtree(space.out / "warm-up-work")


def quality(space: Workspace) -> dict[str, Any]:
    """Search both graphs in memory with all queries from their own medoids; distances a query at equal recall."""
    theirs = diskann.read_graph(space.require(space.diskann_index), space.data.shape())
    mine = graph_quality.read_ours(space.require(space.index("identity")))
    found: dict[str, Any] = {"recall": RECALL}
    for name, graph in (("diskann", theirs), ("indexmill", mine)):
        rows = graph_quality.curve(space.data, graph)
        found[name] = {"distances": value_at(rows, "distances"), "rows": rows}
    both = (found[name]["distances"] for name in ("indexmill", "diskann"))
    return found | {"distances_ratio": ratio(*both)}


def compactness(space: Workspace) -> dict[str, Any]:
    """Take the proxies of the same vectors' star order as float32, where 6 nodes share a page instead of 15."""
    index = space.index("float32")
    built = (index / "manifest.json").exists()
    if not built or ours.manifest(index)["input"]["n_vectors"] != space.data.shape()[0]:
        base = space.out / "base.fbin"
        write_bin(base, read_bin(space.data.base))
        ours.build_fresh(space, base, index, "star", space.out / "work-float32")
        base.unlink()
    return {"layout": ours.manifest(index)["layout"]}


def startup(space: Workspace) -> dict[str, Any]:
    """Time ``import indexmill`` and ``indexmill --help``, the median of five runs each: what a user waits for first."""
    script = Path(sysconfig.get_path("scripts")) / "indexmill"
    return {
        "runs": RUNS,
        "import_s": _median_seconds([sys.executable, "-c", "import indexmill"], space.out),
        "help_s": _median_seconds([str(script), "--help"], space.out),
    }


def _median_seconds(command: Sequence[str], folder: Path) -> float:
    """Median wall time after one run that fills the page cache; in `folder`, away from the sources."""
    times = []
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return round(median(times[1:]), 3)
