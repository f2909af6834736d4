"""Count what rows of the papers' pages need that no other benchmark counts: page reads, hops, recalls and shares.

    python -m indexmill.jobs.bench.counts --sift1m DIR --text40k DIR --embed768 DIR --out DIR [--parts text40k] [--keep]

Counts do not depend on what else the machine does; part *blocks* alone, which times reads, needs it quiet. Parts took 8
minutes at most on a busy machine, *faults* 10, *generated-10000* 15 and *leaves-10m* 18.
"""

from __future__ import annotations

from functools import partial

from indexmill.jobs.bench.common.benchmark import PAGE, Benchmark, Page, Run
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.counts import (
    choices,
    codes,
    components,
    difficulty,
    drives,
    faults,
    guarantee,
    hash_tables,
    leaves,
    lists,
    pages,
    phases,
    tables,
    users,
)
from indexmill.jobs.bench.counts.left_out import formats
from indexmill.jobs.bench.counts.sets import CODE_SHARE, QUERIES, Case, generated, given, sift_floats
from indexmill.jobs.bench.programs import diskann

#: Generated vectors, in thousands.
GENERATED = (250, 500, 1000, 2000, 10_000)


def scaled(run: Run, thousands: int) -> Case:
    """Return so many generated vectors; of a trial with N rows the same share of N for each million."""
    return generated(run, thousands * (run.rows or 1_000_000) // 1000)


BENCHMARK = Benchmark[Run](
    "counts",
    {
        "difficulty": difficulty.measure,
        "text40k": partial(components.measure, make=partial(given, name="text40k")),
        "embed768": partial(
            components.measure_nodes, make=partial(given, name="embed768", builder="partition")
        ),
        "sift1m": partial(components.measure, make=sift_floats),
        "codes": codes.codes,
        "entries": choices.entries,
        "packing": choices.packing,
        "formats": formats.measure,
        "blocks": formats.blocks,
        "users": users.measure,
        "diskann": codes.beside_diskann,
        **{
            f"generated-{n}": partial(components.measure_generated, make=partial(scaled, thousands=n))
            for n in GENERATED
        },
        "pages": pages.measure,
        "lists": lists.measure,
        "own-lists": lists.own_lists,
        "closures": lists.closures,
        "hops-saved": phases.hops_saved,
        "leaves": leaves.measure,
        "leaves-10m": leaves.large,
        "guarantee": guarantee.measure,
        "paper-tables": tables.measure,
        "default-tables": hash_tables.defaults,
        "tuned-tables": hash_tables.tuned,
        "synthetic": tables.synthetic,
        "faults": faults.measure,
        "control-path": drives.control_path,
        "cuts": drives.cuts,
    },
    sets=("sift1m", "text40k", "embed768"),
    parameters={"threads": THREADS, "queries": QUERIES, "code_share": CODE_SHARE},
    peers=diskann.PACKAGES,
    pages=(Page("tables", PAGE, "counts"), Page("formats", PAGE, "counts-formats")),
)

if __name__ == "__main__":
    BENCHMARK.main()
