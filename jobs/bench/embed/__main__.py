"""Measure the default index of embeddings: beside DiskANN, beside flags set by hand, and by the length of vectors.

    python -m indexmill.jobs.bench.embed --embed768 DIR --text40k DIR --sift1m DIR --out DIR [--parts default] [--keep]

The default and DiskANN's index that are in OUT are used, and those that a part misses are built; only the part
``build``, which measures that, always builds anew. Sets that are made of others, and the bundled words, are written
below OUT.
"""

from __future__ import annotations

from functools import partial

from indexmill.jobs.bench.common.benchmark import PAGE, ROUNDS_OPTION, Benchmark, Page, Target
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, PQ_BYTES, THREADS
from indexmill.jobs.bench.embed import default, dimensions, formats, hand, on_page, plots, wide
from indexmill.jobs.bench.embed.sets import BY_COMPONENTS, SENTENCES, Embeddings
from indexmill.jobs.bench.programs import diskann


def added_by_format(part: str) -> str:
    """Return the formula of what the choice of the format adds to the rest of the build of a part."""
    return f"{part}.stage_s.format / ({part}.wall_s - {part}.stage_s.format)"


_DEFAULT = "default format / the best by hand at the same memory, page reads"
TARGETS = (
    Target(
        "page reads at 0.95, default / DiskANN, codes of 64 bytes", "default.to_diskann['0.95']", "<=", 0.27, "x"
    ),
    Target("page reads at 0.98, the same", "default.to_diskann['0.98']", "<=", 0.27, "x"),
    Target(
        "queries a second at 0.95, default / DiskANN, 2 threads each, ours with 16 queries a thread",
        "default.rates.ratio['0.95']", ">=", 6, "x",
    ),
    Target("the same, one query a thread on both sides", "default.rates.ratio_single['0.95']", ">=", 6, "x"),
    Target("the same, 32 in flight on both sides", "default.rates.ratio_many['0.95']", ">=", 3, "x"),
    Target(
        "page reads at 0.95, the best by hand, codes of 64 bytes",
        "portfolio.bytes['64'].best.pages_read['0.95']", "<=", 24,
    ),
    Target("the same, codes of 128 bytes", "portfolio.bytes['128'].best.pages_read['0.95']", "<=", 19),
    Target(
        "page reads at 0.95, default of 32 bytes a vector / 32-byte codes of the vectors as they are, float32 nodes",
        "former.ratio['0.95']", "<=", 0.4, "x",
    ),
    Target("choice of the format / rest of the build, seconds", "build.format_added", "<=", 0.1, "x"),
    *(
        Target(f"the same, {dim:,} components, one build", added_by_format(f"dimensions_{dim}"), "<=", 0.1, "x")
        for dim in BY_COMPONENTS
        if BY_COMPONENTS[dim] != SENTENCES
    ),
    Target(
        f"recall@10 with exact vectors apart, L = {formats.LONGEST}",
        "portfolio.bytes['64'].tried[-1].highest_recall", ">=", 0.999,
    ),
    Target(f"{_DEFAULT}, {SENTENCES}", "portfolio.bytes['64'].ratio", "<=", 1.05, "x"),
    *(Target(f"{_DEFAULT}, {name}", f"others.sets.{name}.ratio", "<=", 1.05, "x") for name in hand.OTHERS),
    Target("reads of a node at 0.95, codes on the page / in memory", "on_page.ratio['0.95']", "<=", 1.5, "x"),
    Target("codes on the page, peak of a C program with up to a million vectors, MiB", "on_page.peak_mib", "<=", 16),
    Target("the same with three million vectors, a substitute, MiB", "on_page.repeated_peak_mib", "<=", 20),
    Target("time to open with all vectors / a quarter of them", "on_page.open_growth", "<=", 1.25, "x"),
)  # fmt: skip


#: What of the record the guide of builds shows.
BUILD_PAGE = ("format", "exact", "on_page")

BENCHMARK = Benchmark[Embeddings](
    "embed",
    {
        "build": default.measure_build,
        "default": default.measure,
        "portfolio": hand.portfolio,
        "former": hand.former,
        "others": hand.others,
        "wide": wide.measure,
        "on-page": on_page.measure,
        **{
            f"{what}-{dim}": partial(measure, dim=dim)
            for dim in BY_COMPONENTS
            for what, measure in (("dimensions", dimensions.measure), ("frontier", dimensions.frontier))
        },
    },
    TARGETS,
    sets=(SENTENCES, "text40k", "sift1m"),
    space=lambda run: Embeddings(run, run.options.rounds),
    parameters={"threads": THREADS, "memory": BUILD_MEMORY, "pq_bytes": 2 * PQ_BYTES},
    peers=diskann.PACKAGES,
    pages=(
        Page("tables", PAGE, "embed"),
        Page("guide", "docs/guides/embeddings.md", "embed"),
        Page("readme", "README.md", "embed"),
        Page("tune", "docs/guides/tune.md", "embed"),
        *(
            Page(f"build_{what}", "docs/guides/build.md", f"embed-{what.replace('_', '-')}")
            for what in BUILD_PAGE
        ),
    ),
    options=ROUNDS_OPTION,
    draw=plots.write_all,
)

if __name__ == "__main__":
    BENCHMARK.main()
