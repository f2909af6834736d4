"""`indexmill join`: the neighbours of many queries in an IVF index, batch after batch."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.options import Column, Force, Json, K, Memory, Workers, examples

NAME = "join"
EXAMPLES = examples(
    "indexmill join queries.u8bin base.ivf -k 10 --nprobe 32 --out result.parquet",
    "indexmill join orders.parquet base.ivf --id-column order --recall 0.95 --out result.parquet",
)


def command(
    queries: Annotated[str, typer.Argument(metavar="QUERIES", help="Query vectors, in any input format.")],
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="An index of kind ivf.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.parquet", help="Where the result goes; missing: an error.")
    ] = None,
    k: K = 10,
    nprobe: Annotated[
        int | None,
        typer.Option(metavar="P", help="Lists that a query probes in every batch; all of them: exact."),
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(
            metavar="R", help="In place of --nprobe: the recall to reach; nprobe is learnt from 200 queries."
        ),
    ] = None,
    column: Column = None,
    id_column: Annotated[str | None, typer.Option(help="Column of the queries' own ids.")] = None,
    memory: Memory = "8GiB",
    workers: Workers = 2,
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep partial results here until the join is finished; default: beside FILE."
        ),
    ] = None,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Find the nearest vectors of many queries at once, reading every batch of an index once, front to back.

    A join that was killed, or that found a batch damaged, goes on with what is left when it is run again.
    """
    from indexmill.jobs.joining import join_files
    from indexmill.jobs.progress import stderr_progress

    with stderr_progress() as progress:
        report = join_files(
            queries, index, out, k=k, nprobe=nprobe, recall=recall, column=column, id_column=id_column, memory=memory,
            workers=workers, work=work, force=force, progress=progress,
        )  # fmt: skip
    facts = {"out": str(out), **{name: value for name, value in asdict(report).items() if value is not None}}
    if json_:
        print(json.dumps(facts, indent=2))
        return
    learnt = ""
    if report.recall is not None:
        interval = f"[{report.recall_low:.4f}, {report.recall_high:.4f}]"
        learnt = f" (recall {report.recall:.4f} {interval} where it was learnt)"
    print(f"{out}: {report.rows:,} rows of {report.queries:,} queries at nprobe {report.nprobe:,}{learnt}")
    if report.short:
        print(
            f"{report.short:,} queries have fewer than {k} neighbours in the lists they probe (column short)"
        )
    if report.load_seconds:
        rate = report.load_bytes / report.load_seconds / 1e6
        print(
            f"{report.batches:,} batches, {report.reused:,} of them found from before: loaded in "
            f"{report.load_seconds:.2f} s ({rate:,.0f} MB/s), searched in {report.search_seconds:.2f} s, both in "
            f"{report.seconds:.2f} s"
        )
