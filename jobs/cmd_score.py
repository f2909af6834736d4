"""`indexmill score`: recall and cost of an index over a query set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.jobs.options import (
    BeamWidth,
    Column,
    Engine,
    Entry,
    IndexDir,
    InFlight,
    Json,
    K,
    Queries,
    Threads,
    examples,
    split_policies,
    split_sizes,
)

if TYPE_CHECKING:
    from rich.table import Table

NAME = "score"
EXAMPLES = examples(
    "indexmill score index --queries query.u8bin --truth truth.gt -L 20,50,100 --policy beam,page",
    "indexmill score index --queries query.parquet --base base.parquet --first 500 --json",
)


def command(
    index: IndexDir,
    queries: Queries = None,
    truth: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="True neighbours of the queries (big-ann ground truth)."),
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Instead of --truth: the index's input, to compute the truth from."
        ),
    ] = None,
    column: Column = None,
    k: K = 10,
    sizes: Annotated[
        str, typer.Option("-L", "--search-list-size", metavar="L,L", help="Search list sizes to measure.")
    ] = "20,50,100",
    policy: Annotated[
        str, typer.Option(metavar="page|beam|beam,page", help="Search policies to measure.")
    ] = "page",
    entry: Entry = "centroids",
    beam_width: BeamWidth = None,
    threads: Threads = 1,
    inflight: InFlight = None,
    engine: Engine = "auto",
    first: Annotated[int | None, typer.Option(min=1, help="Use only so many queries.")] = None,
    skip: Annotated[
        int, typer.Option(min=0, help="Leave out so many queries first: tune on some, report on the others.")
    ] = 0,
    json_: Json = False,
) -> None:
    """Measure recall, page reads, latency and throughput; means are per query, recall has a 95% interval."""
    from dataclasses import replace

    from indexmill.jobs.opening import ENGINES, ENTRIES, open_index
    from indexmill.jobs.options import one_of
    from indexmill.jobs.score import Setting, score
    from indexmill.jobs.truth import load_queries

    policies, list_sizes = split_policies(policy), split_sizes(sizes, "-L")
    one_of(engine, ENGINES, "--engine")
    setting = Setting(k, policies[0], one_of(entry, ENTRIES, "--entry"), threads, beam_width, inflight)
    opened = open_index(index, engine)
    query_set = load_queries(opened, queries, truth, base or [], k, column, threads).part(skip, first)
    rows = [
        {**score(opened, query_set, size, replace(setting, policy=name)), "engine": opened.native.engine}
        for name in policies
        for size in list_sizes
    ]
    if json_:
        print(json.dumps(rows, indent=2))
    else:
        from indexmill.jobs.tables import stdout_console

        stdout_console().print(score_table(rows))


def score_table(rows: list[dict[str, Any]]) -> Table:
    """Make a table of score rows."""
    from indexmill.jobs.tables import add_row, plain_table

    k, n, threads = rows[0]["k"], rows[0]["n_queries"], rows[0]["threads"]
    headings = ["L", "policy", f"recall@{k}", "95% interval", "pages", "hops", "distances"]
    headings += ["used/read", "mean us", "P99 us", "qps"]
    table = plain_table(
        f"{n:,} queries, {threads} thread{'s' if threads > 1 else ''}, entry {rows[0]['entry']},"
        f" engine {rows[0]['engine']}",
        headings,
    )
    for row in rows:
        used = row["bytes_used"] / row["bytes_read"] if row["bytes_read"] else 0.0
        cells = [
            str(row["L"]),
            row["policy"],
            f"{row['recall']:.4f}",
            f"{row['recall_low']:.4f} .. {row['recall_high']:.4f}",
            f"{row['pages_read']:.1f}",
            f"{row['hops']:.1f}",
            f"{row['distances']:,.0f}",
            f"{used:.0%}",
            f"{row['latency_us_mean']:,.0f}",
            f"{row['latency_us_p99']:,.0f}",
            f"{row['qps']:,.0f}",
        ]
        add_row(table, cells)
    return table
