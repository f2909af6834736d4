"""Measure the pages that filtered searches read, for sets of ids and for columns of labels (`columns`).

    python -m indexmill.jobs.bench.filters --sift1m DIR --embed768 DIR --text40k DIR --out DIR [--keep]

Indexes that are in OUT are used: ``OUT/sift1m/indexmill-star``, and ``indexmill-default`` of the others, and
``OUT/embed768/indexmill-on-page`` (part labels: also ``indexmill-on-page-labels-...``, by columns of labels).
"""

from __future__ import annotations

from functools import partial

from indexmill.jobs.bench.common.benchmark import PAGE, Benchmark, Page, Run, Target
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.filters import reads
from indexmill.jobs.bench.filters.columns import KINDS, SAMPLE
from indexmill.jobs.bench.filters.searches import QUERIES

TARGETS = tuple(
    Target(
        f"page reads within a label with edges of its own / with today's edges, codes on the page, `{kind}`, "
        f"one in {one_in}",
        f"labels.by.{kind}{one_in}", "<=", 0.5, "x",
    )
    for kind, one_in in reads.WITHIN
) + tuple(
    Target(
        f"page reads as planned / of a walk along edges alone, codes in memory, {name}, `{kind}`, one in {one_in}",
        f"{name}.by.{kind}{one_in}", "<=", 0.5, "x",
    )
    for name in reads.SETS
    for one_in in (100, 10)
    for kind in KINDS
    if kind != "far"  # which a longer list does not find
)  # fmt: skip

BENCHMARK = Benchmark[Run](
    "filters",
    {
        **{name: partial(reads.measure, name=name) for name in reads.SETS},
        "alone": reads.alone,
        "on-page": reads.on_page,
        "alone-on-page": reads.alone_on_page,
        "labels": reads.labels,
    },
    TARGETS,
    sets=reads.SETS,
    parameters={"threads": THREADS, "queries": QUERIES, "kmeans_sample": SAMPLE},
    pages=(Page("tables", PAGE, "filters"), Page("guide", "docs/guides/search.md", "filters")),
)

if __name__ == "__main__":
    BENCHMARK.main()
