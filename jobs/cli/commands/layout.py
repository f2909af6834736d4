"""`indexmill layout`: a finished index laid out again, as its next generation, or another engine's file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.jobs.options.shared import (
    Column,
    Force,
    Json,
    KeepGenerations,
    Memory,
    NewOut,
    Queries,
    Workers,
    examples,
)

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.pipeline.relayout.run import LayoutResult

NAME = "layout"
EXAMPLES = examples(
    "indexmill layout products.index",
    "indexmill layout products.index --effort high --queries tune.npy",
    "indexmill layout products.index --query-log searches.npy",
    "indexmill layout products.index --order star --out laid-out.index",
    "indexmill layout products.index --order-file order.npy",
    "indexmill layout products.index --order agglomerative --prune-edges",
    "indexmill layout hnsw.faiss --out laid-out.faiss",
    "indexmill layout ivf.faiss --out laid-out.faiss",
)
#: Options that do not apply to a file of another engine.
_OF_AN_INDEX = (
    "effort",
    "queries",
    "truth",
    "query_log",
    "column",
    "prune_edges",
    "certify",
    "keep_generations",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `layout`."""

    index: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|FILE",
            help="The index: a directory with a manifest.json; or a file of faiss (HNSW, inverted lists) or hnswlib.",
        ),
    ]
    order: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|auto",
            help="An order by name (`indexmill build --help` lists them), or the one with the fewest page reads."
            " (default auto; for a FILE kmeans-pages, or star where it does not tell the type of its vectors)",
        ),
    ] = None
    order_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npy",
            help="An order of your own: the vector id in each slot; of a FILE, the row or list in each place.",
        ),
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
    query_log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Past queries, oldest first, in any input format: what repeated ones read gets pages of its own,"
            " if that saves page reads of the last fifth.",
        ),
    ] = None
    column: Column = None
    out: NewOut = None
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Scratch files, three to four times the index (of a FILE at most its size). Default: beside --out.",
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
    keep_generations: KeepGenerations = None
    json_: Json = False


def command(options: Options) -> None:
    """Lay an index out again for fewer page reads; vectors, graph, codes and ids stay what they are.

    Only --prune-edges changes the graph. The index may be larger than memory.

    `auto` tries every order on a sample, or on the whole index if that is small, and counts the page reads of tuning
    queries at equal recall. The result is the index's next generation; searches that have the index open are not
    disturbed.

    A FILE of another engine is written to --out with its vertices, or its inverted lists, in another order. The engine
    finds the same ids, except that of equally near vectors it may find others. Of inverted lists, faiss may round
    distances in another way when it searches for 20 queries or more at a time.
    """
    if options.index.is_file():
        _lay_out_file(options)
        return
    from indexmill.jobs.api.layout import given_log, given_queries, layout_request
    from indexmill.jobs.api.run_options import run_options
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.pipeline.relayout.run import run_layout

    how = run_options(
        options.out, options.memory, options.workers, options.force, options.work, options.keep_generations
    )
    tuning = given_queries(options.queries, options.truth, options.column)
    log = given_log(options.query_log, options.column)
    request = layout_request(
        options.order, options.order_file, options.effort, tuning, log, options.prune_edges, options.certify
    )
    with stderr_progress() as progress:
        result = run_layout(options.index, request, how, progress)
    _show(options.index, options.out, result, options.json_)


def _lay_out_file(options: Options) -> None:
    """Write another engine's file in an order."""
    from indexmill.jobs.api.layout import check_file_request
    from indexmill.jobs.api.run_options import run_options
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.console.tables import stdout_console

    how = run_options(options.out, options.memory, options.workers, options.force, options.work)
    of_an_index = {name: getattr(options, name) for name in _OF_AN_INDEX}
    check_file_request(options.index, options.order, options.order_file, of_an_index)
    from indexmill.pipeline.reorder.run import run_reorder

    with stderr_progress() as progress:
        found = run_reorder(options.index, options.order, options.order_file, how, progress)
    if options.json_:
        print(json.dumps(asdict(found), indent=2))
        return
    text = (
        f"{options.out}: {found.kind}, {found.content} in the order {found.order}, {found.bytes:,} bytes; ids are "
        f"{found.ids}"
    )
    stdout_console().print(text, markup=False, soft_wrap=True)


def _show(index: Path, out: Path | None, result: LayoutResult, as_json: bool) -> None:
    """Print what was tried and what was published."""
    if as_json:
        print(json.dumps(asdict(result), indent=2))
        return
    from indexmill.jobs.cli.summary import print_summary
    from indexmill.jobs.console.tables import stdout_console

    console = stdout_console()
    if result.choice is not None:
        _show_choice(console, result.choice)
    if result.query_log is not None and "inherited" not in result.query_log:
        console.print(_log_words(result.query_log), markup=False, soft_wrap=True)
        if "warning" in result.query_log:
            console.print(f"query log: warning: {result.query_log['warning']}", markup=False, soft_wrap=True)
    if result.manifest is None:
        console.print(f"{index} is laid out by {result.order} already: nothing was written", markup=False)
        return
    print_summary(console, out or index, result.manifest)
    pruned = result.manifest["layout"].get("pruned_edges")
    if pruned is not None and "inherited" not in pruned:
        console.print(_pruned_words(pruned))


def _pruned_words(pruned: dict[str, Any]) -> str:
    low, high = pruned["more_than_before"]
    return (
        f"edges pruned for pages: {pruned['pages_read']:.2f} page reads a query instead of "
        f"{pruned['pages_read_before']:.2f} ({low:+.2f} to {high:+.2f}, 95%) at recall@{pruned['k']} "
        f"{pruned['recall']:.3f}; {1 - pruned['edges_kept']:.0%} of the edges were replaced"
    )


def _log_words(log: dict[str, Any]) -> str:
    """Say what a log of queries changed."""
    repeats = (
        f"{log['tuning_repeats']:.1%} of the {log['tuning_queries']:,} earlier queries repeat one before them, "
        f"{log['judged_repeats']:.1%} of the later ones"
    )
    if not log["bundles"]:
        return f"query log: it changes nothing, because too few queries repeat ({repeats})"
    low, high = log["more_than_unweighted"]
    reads = (
        f"{log['pages_read_weighted']:.2f} page reads a query instead of {log['pages_read_unweighted']:.2f} "
        f"({low:+.2f} to {high:+.2f}, 95%) at recall@{log['k']} {log['recall']:.3f}, by {log['judged_queries']:,} "
        f"queries, {log['judged_distinct']:,} of them distinct"
    )
    if log["chosen"] == "unweighted":
        return f"query log: it does not pay, so the order stays unweighted: with the log {reads}; {repeats}"
    return f"query log: {reads}; {log['bundled_vectors']:,} vectors in {log['bundles']:,} bundles; {repeats}"


def _show_choice(console: Console, choice: dict[str, Any]) -> None:
    from indexmill.jobs.console.tables import add_row, plain_table

    title = (
        f"page reads a query at recall@{choice['k']} {choice['recall']:.3f}: {choice['queries']} queries from "
        f"{choice['queries_from']}, {choice['sample_vectors']:,} vectors"
    )
    table = plain_table(title, ["order", "page reads", "more than the best (95%)", "L", "work units"])
    for row in choice["candidates"]:
        low, high = row["more_than_best"]
        more = "best" if low == high == 0 else f"{low:+.2f} to {high:+.2f}"
        work = f"{row['work']:,}" + (" (ran out)" if row["exhausted"] else "")
        add_row(
            table, [row["order"], f"{row['pages_read']:.2f}", more, f"{row['search_list_size']:.0f}", work]
        )
    console.print(table)
    for order in choice["skipped"]:
        console.print(
            f"not tried for lack of memory: {order['order']}; give at least {order['memory']:,} bytes with --memory"
        )
