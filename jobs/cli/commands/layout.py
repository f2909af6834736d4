"""`indexmill layout`: a finished index laid out again, as its next generation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.options.shared import (
    Column,
    Force,
    IndexDir,
    Json,
    Memory,
    NewOut,
    Queries,
    Workers,
    examples,
)

NAME = "layout"
EXAMPLES = examples(
    "indexmill layout products.index",
    "indexmill layout products.index --effort high --queries tune.npy",
    "indexmill layout products.index --order star --out laid-out.index",
    "indexmill layout products.index --order-file order.npy",
    "indexmill layout products.index --order polish --prune-edges",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `layout`."""

    index: IndexDir
    order: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|auto",
            help="An order of the portfolio (docs/guides/layout.md), or the one with the fewest"
            " page reads. (default auto)",
        ),
    ] = None
    order_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy", help="An order of your own: the vector id in each slot."),
    ] = None
    effort: Annotated[
        str | None,
        typer.Option(
            metavar="low|normal|high",
            help="Limit of what is tried, in units of work. (default normal; none for an order by name)",
        ),
    ] = None
    prune_edges: Annotated[
        bool,
        typer.Option(
            "--prune-edges",
            help="Experimental: choose neighbour lists anew for the pages of the order,"
            " and keep them if that saves page reads.",
        ),
    ] = False
    queries: Queries = None
    truth: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="True neighbours of the queries (big-ann); default: computed."),
    ] = None
    column: Column = None
    out: NewOut = None
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Scratch files, three to four times the index; default: beside the output."
        ),
    ] = None
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Measure recall and page reads again, as a build does; holds the codes in memory.",
        ),
    ] = False
    memory: Memory = "1GiB"
    workers: Workers = 2
    force: Force = False
    json_: Json = False


def command(options: Options) -> None:
    """Lay an index out again for fewer page reads, out of core; vectors, graph, codes and ids stay what they are.

    Only --prune-edges changes the graph.

    `auto` tries every order on a sample, or on the whole index if that is small, and counts the page reads of tuning
    queries at equal recall. The result is the index's next generation; searches that have the index open are not
    disturbed.
    """
    from indexmill.jobs.api.layout import given_queries, layout_request, show_layout
    from indexmill.jobs.api.run_options import run_options
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.pipeline.relayout.run import run_layout

    how = run_options(options.out, options.memory, options.workers, options.force, options.work)
    tuning = given_queries(options.queries, options.truth, options.column)
    request = layout_request(
        options.order, options.order_file, options.effort, tuning, options.prune_edges, options.certify
    )
    with stderr_progress() as progress:
        result = run_layout(options.index, request, how, progress)
    show_layout(options.index, options.out, result, options.json_)
