"""`indexmill truth`: the true nearest vectors of queries, for `score` and `compare`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.options.shared import Column, Force, Json, K, Memory, Workers, examples

NAME = "truth"
EXAMPLES = examples(
    "indexmill truth base.u8bin queries.u8bin -k 100 --out truth.gt",
    "indexmill truth base.ivf queries.u8bin -k 100 --out truth.gt",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `truth`."""

    base: Annotated[
        str, typer.Argument(metavar="BASE", help="Vectors, in any input format, or an index of kind ivf.")
    ]
    queries: Annotated[str, typer.Argument(metavar="QUERIES", help="Query vectors, in any input format.")]
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The ground-truth file to write (required).")
    ] = None
    k: K = 100
    metric: Annotated[
        str | None, typer.Option(metavar="l2|ip|cosine", help="Metric of vector files. (default l2)")
    ] = None
    column: Column = None
    memory: Memory = "8GiB"
    workers: Workers = 2
    force: Force = False
    json_: Json = False


def command(options: Options) -> None:
    """Compute the true nearest vectors of queries, streaming the vectors; ties go to the smaller vector id."""
    from indexmill.formats.errors import ConfigError
    from indexmill.formats.sources.truth import write_truth
    from indexmill.jobs.api.joining import truth_of
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.search.results import check_writable

    if options.out is None:
        raise ConfigError("--out: missing; name the ground-truth file to write")
    check_writable(options.out, options.force)
    began = time.perf_counter()
    with stderr_progress() as progress:
        truth = truth_of(
            [options.base], options.queries, k=options.k, metric=options.metric, column=options.column,
            memory=options.memory, workers=options.workers, progress=progress,
        )  # fmt: skip
    write_truth(options.out, truth)
    n_queries, found = truth.ids.shape
    seconds = time.perf_counter() - began
    if options.json_:
        facts = {"out": str(options.out), "queries": n_queries, "k": found, "seconds": round(seconds, 3)}
        print(json.dumps(facts, indent=2))
    else:
        print(f"{options.out}: the {found} nearest of {n_queries:,} queries, {seconds:.1f} s")
