"""Part *build*: build time and memory beside DiskANN's, and the other page order for the search parts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import ratio
from indexmill.jobs.bench.common.dataset import read_bin, write_bin
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.workspace import BUILD_MEMORY, MAX_DEGREE, PQ_BYTES, THREADS, Workspace

#: Rows of the build that compiles the kernels beforehand: that happens once, not with every build.
_WARM_UP_ROWS = 2000


def measure(space: Workspace) -> dict[str, Any]:
    """Build with DiskANN, then with indexmill, from an empty work folder each."""
    _warm_up(space)
    _touch(space.data.base)
    theirs = diskann.build(space)
    _touch(space.data.base)
    star, work = space.index("star"), space.out / "work"
    usage = ours.build_fresh(space, space.data.base, star, "star", work).to_dict()
    made = ours.manifest(star)
    mine = {
        **usage,
        "stage_s": ours.stage_seconds(star),
        "pq_bytes": PQ_BYTES,
        "graph_file_bytes": (star / "graph.imx").stat().st_size,
        "layout": made["layout"],
        "graph": made["graph"],
        "certificate": made["certificate"],
    }
    ours.build(space, space.data.base, space.index("identity"), ours.Shape("identity"), work)
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
    base, index = space.out / "warm-up.u8bin", space.out / "indexmill-warm-up"
    write_bin(base, read_bin(space.data.base)[:_WARM_UP_ROWS])
    ours.build_fresh(space, base, index, "star", space.out / "warm-up-work")
    base.unlink()
    shutil.rmtree(index)
    shutil.rmtree(space.out / "warm-up-work")


def _touch(path: Path) -> None:
    """Read a file once, so that neither side finds it colder than the other."""
    for rows in np.array_split(np.memmap(path, np.uint8, "r"), 64):
        rows.sum()
