"""Measure what a sample of queries saves where queries are unlike the vectors (`sets`), in page reads.

python -m indexmill.jobs.bench.queries_apart --texts DIR --out DIR [--keep]
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from indexmill.jobs.bench.common.benchmark import PAGE, Benchmark, Page, Run, Target
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.queries_apart import sets
from indexmill.jobs.bench.queries_apart.reads import ONE_IN, measure
from indexmill.jobs.bench.queries_apart.sets import Apart


def modalities(run: Run) -> Apart:
    """Make the generated set."""
    return sets.modalities(*(() if run.rows is None else (run.rows, run.rows // 2)))


def modalities_ip(run: Run) -> Apart:
    """Make the generated set for inner product."""
    return sets.with_lengths(modalities(run))


def texts(run: Run) -> Apart:
    """Make the set of texts."""
    return sets.pooled_texts(run.options.texts, *(() if run.rows is None else (run.rows,)))


PARTS = {
    "modalities": partial(measure, name="modalities", made=modalities),
    "modalities-ip": partial(measure, name="modalities-ip", made=modalities_ip, metric="ip"),
    "texts": partial(measure, name="texts", made=texts),
}
TARGETS = tuple(
    Target(
        f"page reads at 0.95, with / without the sample, {name}",
        f"{name.replace('-', '_')}.ratio.apart", "<=", 0.70, "x",
    )
    for name in PARTS
)  # fmt: skip

BENCHMARK = Benchmark[Run](
    "queries_apart",
    PARTS,
    TARGETS,
    sets=(),
    pages=(Page("tables", PAGE, "queries_apart"), Page("guide", "docs/guides/build.md", "queries_apart")),
    parameters={"threads": THREADS, "one_in": ONE_IN},
    options={
        "--texts": {
            "type": Path, "required": True, "metavar": "DIR", "help": "folder of text40k: base.parquet, query.parquet",
        }
    },
)  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.main()
