"""Measure indexmill against DiskANN on the set ``sift1m``.

    python -m indexmill.jobs.bench.sift1m --sift1m DIR --out DIR [--parts build,qps] [--keep] [--rows N]

Indexes that are in OUT are used, and those that a part misses are built; only the part ``build``, which measures that,
always builds anew.
"""

from __future__ import annotations

from indexmill.jobs.bench.common import disk
from indexmill.jobs.bench.common.benchmark import PAGE, Benchmark, Page, Target
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, THREADS
from indexmill.jobs.bench.programs.diskann import PACKAGES
from indexmill.jobs.bench.programs.workspace import Workspace, workspace
from indexmill.jobs.bench.sift1m import (
    ablation,
    bandwidth,
    builds,
    callers,
    completion,
    cpu,
    device_limit,
    latency,
    memory,
    page_reads,
    paper,
    plots,
    qps,
)

TARGETS = (
    Target("queries a second at 0.95, indexmill / DiskANN", "qps.ratio['0.95']", ">=", 2.5, "x"),
    Target("queries a second at 0.98, indexmill / DiskANN", "qps.ratio['0.98']", ">=", 2.5, "x"),
    Target("page reads at 0.95, default order, indexmill / DiskANN", "reads.to_diskann['0.95']", "<=", 0.33, "x"),
    Target("page reads at 0.95, default order / star", "reads.to_star['0.95']", "<=", 0.82, "x"),
    *(
        Target(
            f"mean latency at {at}, one query at a time, indexmill / DiskANN",
            f"latency.ratio['{at}'].mean", "<=", 0.5, "x",
        )
        for at in ("0.90", "0.95", "0.98")
    ),
    Target(
        "P99 latency at 0.90, one query at a time, indexmill / DiskANN", "latency.ratio['0.90'].p99", "<=", 0.5, "x"
    ),
    *(
        Target(
            f"P99 latency at {at}, one query at a time, ids out of the page cache, indexmill / DiskANN",
            f"latency.ratio_cold['{at}'].p99", "<=", 0.5, "x",
        )
        for at in ("0.95", "0.98")
    ),
    Target("CPU time a query at 0.95, indexmill / DiskANN", "cpu.ratio['0.95']", "<=", 0.25, "x"),
    Target("of it outside the kernel", "cpu.user_us.indexmill['0.95']", "<=", 75, "us"),
    Target("queries a second, 64 callers with one query / a call with 64", "callers.ratio", ">=", 0.9, "x"),
    Target(
        "reads a second at 0.95, with as many queries in flight as is fastest, search / raw reads",
        "qps.disk_share['0.95']", ">=", 0.97, "x",
    ),
    Target("reads a second of a search that computes little, search / raw reads", "device.share", ">=", 0.97, "x"),
    Target("time to open the index", "open.ms", "<=", 60, "ms"),
    Target("resident memory that opening adds / what the index says it holds", "open.grown_to_held", "<=", 1.05, "x"),
    Target("memory of a C program, peak / (codes + entries + 64 MiB)", "memory.to_allowed", "<=", 1, "x"),
    Target("page reads at 0.95, page search, star / identity", "reads.star_to_identity['0.95']", "<=", 0.68, "x"),
    Target("build time, indexmill / DiskANN", "build.wall_ratio", "<=", 0.8, "x"),
    Target("build memory, peak", "build.indexmill.peak_bytes / GIB", "<=", 4, "GiB"),
    Target("stage `order`", "build.indexmill.stage_s.order", "<=", 15, "s"),
    Target(
        "distances at 0.95, same search on both graphs, indexmill / DiskANN", "quality.distances_ratio", "<=", 1.03, "x"
    ),
    Target("page compactness, float32", "compactness.layout.page_compactness", ">", 0.5),
    Target("`import indexmill`", "startup.import_s", "<", 0.5, "s"),
    Target("`indexmill --help`", "startup.help_s", "<", 0.5, "s"),
)  # fmt: skip


BENCHMARK = Benchmark[Workspace](
    "sift1m",
    {
        "disk": lambda space: disk.measure(space.out),
        "startup": builds.startup,
        "build": builds.measure,
        "quality": builds.quality,
        "reads": page_reads.measure,
        "qps": qps.measure,
        "latency": latency.measure,
        "cpu": cpu.measure,
        "ablation": ablation.measure,
        "bandwidth": bandwidth.measure,
        "paper": paper.measure,
        "completion": completion.measure,
        "alike": completion.alike,
        "device": device_limit.measure,
        "memory": memory.measure,
        "open": memory.opening,
        "callers": callers.measure,
        "compactness": builds.compactness,
    },
    TARGETS,
    space=workspace,
    parameters={"threads": THREADS, "memory": BUILD_MEMORY},
    peers=PACKAGES,
    pages=(Page("tables", PAGE, "record"), Page("readme", "README.md", "record")),
    draw=plots.write_all,
)

if __name__ == "__main__":
    BENCHMARK.main()
