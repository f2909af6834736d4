"""Our builds of the benchmark of the partition builder: through the ``indexmill`` command, as a user would run them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import key, value_at
from indexmill.jobs.bench.common.dataset import Dataset, read_bin, write_beginning
from indexmill.jobs.bench.common.parameters import (
    ALPHA,
    BUILD_MEMORY,
    SEED,
    THREADS,
    pq_bytes,
)
from indexmill.jobs.bench.common.process import indexmill, run_measured
from indexmill.jobs.bench.programs import graph_quality, ours
from indexmill.jobs.bench.programs.diskann import Graph

BUILDERS = ("partition", "vamana")
#: R and L of the cases: indexes on disk, and graphs as libraries keep them in memory, whose lists are not saturated.
SHAPES = ((32, 75), (64, 128))
SETS = ("sift1m", "text40k", "embed768")
#: Rows of the builds that compile the kernels beforehand.
WARM_UP_ROWS = 3000
#: Recalls at which distances of searches in memory are compared, and list sizes searched until the larger is passed.
RECALLS = (0.95, 0.99)
LIST_SIZES = (10, 15, 20, 25, 30, 35, 40, 50, 60, 80, 100, 120, 160, 220, 300, 400, 600, 800)
#: Stages that are not the graph's.
_OTHERS = (
    "ingest", "sample", "cluster", "order", "entries", "encode", "navigation", "pack", "emit", "certify", "publish",
)  # fmt: skip


@dataclass(frozen=True)
class Builds:
    """Sets, places and rounds of the builds.

    Attributes
    ----------
    sets : dict of str to Dataset
        Those of `SETS`.
    out : Path
    rounds : int
        Builds of ours, of which medians are taken.
    rows : int, optional
        How many vectors of each set a trial takes.
    """

    sets: dict[str, Dataset]
    out: Path
    rounds: int
    rows: int | None = None

    def index(self, builder: str) -> Path:
        """Directory of that builder's latest index."""
        return self.out / f"partition-bench-{builder}"

    def remove(self) -> None:
        """Remove the indexes."""
        for builder in BUILDERS:
            shutil.rmtree(self.index(builder), ignore_errors=True)

    def first(self, data: Dataset, rows: int) -> Path:
        """Write the first vectors of a set to a file."""
        return write_beginning(data, rows, self.out)


def build(
    space: Builds, base: Path, builder: str, max_degree: int, list_size: int, **options: Any
) -> dict[str, Any]:
    """Build from nothing, with further `options` of the command.

    ``graph_s`` are seconds of the stages that make the graph, ``index_s`` those of the command without its certificate.
    """
    index = space.index(builder)
    asked = job(base, index, builder, max_degree, list_size) | options
    usage = run_measured(indexmill("build", **asked), index.with_suffix(".log"))
    run = ours.run_facts(index)
    made = ours.manifest(index)
    return {
        **usage.to_dict(),
        "stage_s": run["seconds"],
        "graph_s": graph_seconds(run["seconds"]),
        "index_s": usage.wall_s - run["seconds"].get("certify", 0.0),
        "peak_memory_bytes": run["peak_memory_bytes"],
        "mean_degree": made["graph"]["mean_degree"],
        "edges_added": made["graph"]["edges_added"],
    }


def graph_seconds(stages: dict[str, float]) -> float:
    """Return the seconds of the stages that make the graph."""
    return sum(seconds for name, seconds in stages.items() if name not in _OTHERS)


def memory(
    space: Builds, base: Path, builder: str, max_degree: int, list_size: int, **options: Any
) -> dict[str, int]:
    """Return what `plan` says such a build takes at most, and bytes of the vectors and of the finished graph."""
    log = space.index(builder).with_suffix(".plan")
    asked = job(base, space.index(builder), builder, max_degree, list_size) | options
    run_measured(indexmill("plan", **asked), log)
    text = log.read_text()
    planned = json.loads(text[text.index("{") :])
    vectors = read_bin(base)
    return {
        "planned_peak_bytes": planned["peak_memory_bytes"],
        "planned_graph_bytes": max(
            stage["memory_bytes"] for name, stage in planned["stages"].items() if name not in _OTHERS
        ),
        "vectors_bytes": vectors.nbytes,
        "graph_bytes": 4 * max_degree * len(vectors),
    }


def job(base: Path, index: Path, builder: str, max_degree: int, list_size: int) -> dict[str, Any]:
    """Return the options of ``indexmill build`` and ``plan``."""
    saturate = (max_degree, list_size) == SHAPES[0]
    return {
        "input": base, "out": index, "kind": "graph", "builder": builder, "R": max_degree, "L": list_size,
        "alpha": ALPHA, "saturate": saturate, "no_saturate": not saturate, "order": "identity",
        "pq_bytes": pq_bytes(read_bin(base).shape[1]), "pq_rotation": "none", "node_dtype": "same",
        "seed": SEED, "memory": BUILD_MEMORY, "workers": THREADS, "force": True, "json": True,
    }  # fmt: skip


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of times and memory, what rounds have in common, and all times of graph and index.

    Seconds of stages are medians, too.
    """
    names = ("wall_s", "cpu_s", "graph_s", "index_s", "peak_bytes", "peak_memory_bytes")
    middle: dict[str, Any] = {name: median(run[name] for run in runs) for name in names}
    middle["stage_s"] = {name: median(run["stage_s"][name] for run in runs) for name in runs[-1]["stage_s"]}
    common = {name: runs[-1][name] for name in ("mean_degree", "edges_added")}
    rounds = {name: [run[name] for run in runs] for name in ("graph_s", "index_s")}
    return middle | common | {"rounds": rounds}


def warm_up(space: Builds, data: Dataset, variants: Iterable[dict[str, Any]] = ()) -> None:
    """Build small indexes of a set, with further options, too: kernels are compiled once, not with every build."""
    base = space.first(data, WARM_UP_ROWS)
    for options in variants:
        build(space, base, "partition", *SHAPES[0], **options)
    for builder in BUILDERS:
        build(space, base, builder, *SHAPES[0])
    base.unlink()


def quality(data: Dataset, graph: Graph) -> dict[str, Any]:
    """Search a graph in memory; return the rows, and distances at each of `RECALLS`."""
    rows = graph_quality.curve(data, graph, LIST_SIZES, RECALLS[-1])
    return {"distances": {key(at): value_at(rows, "distances", at) for at in RECALLS}, "rows": rows}


def exponent(rows: list[dict[str, Any]], name: str) -> float:
    """Return the slope of log `name` over log n."""
    sizes = np.log([row["n"] for row in rows])
    return float(np.polyfit(sizes, np.log([row[name] for row in rows]), 1)[0])
