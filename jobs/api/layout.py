"""Request, queries and result in words of a layout, shared by the command line and Python."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import ConfigError
from indexmill.jobs.choices import one_of

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.pipeline.relayout.run import LayoutRequest, LayoutResult
    from indexmill.pipeline.relayout.tuning import GivenQueries


def layout_request(
    order: str | None,
    order_file: str | os.PathLike[str] | None,
    effort: str | None,
    queries: GivenQueries | None,
    prune_edges: bool,
    certify: bool,
) -> LayoutRequest:
    """Check what is asked for.

    Raises
    ------
    ConfigError
        Naming the option, and the nearest name that exists.
    """
    from indexmill.layout.portfolio import ORDERS
    from indexmill.pipeline.relayout.auto import EFFORTS
    from indexmill.pipeline.relayout.run import AUTO, LayoutRequest

    if order is not None:
        one_of(order, (AUTO, *ORDERS), "--order")
    if effort is not None:
        one_of(effort, tuple(EFFORTS), "--effort")
    if order is not None and order_file is not None:
        raise ConfigError("--order-file: the order is given by --order already; keep one of them")
    return LayoutRequest(order or AUTO, order_file, effort, queries, prune_edges, certify)


def given_queries(
    queries: str | None, truth: str | os.PathLike[str] | None, column: str | None = None
) -> GivenQueries | None:
    """Read tuning queries and their true neighbours from files.

    Raises
    ------
    ConfigError
        If there is a truth without queries.
    InputError
        If a file cannot be used, or the two do not belong together.
    """
    if queries is None:
        if truth is not None:
            raise ConfigError("--truth: goes with --queries; name the queries it belongs to")
        return None
    from indexmill.formats.sources.source import read_queries
    from indexmill.formats.sources.truth import read_truth
    from indexmill.pipeline.relayout.tuning import as_given

    vectors = read_queries(queries, column=column)
    return as_given(vectors, None if truth is None else read_truth(Path(truth)).ids)


def show_layout(index: Path, out: Path | None, result: LayoutResult, as_json: bool) -> None:
    """Print what was tried and what was published."""
    if as_json:
        value = {"order": result.order, "manifest": result.manifest, "choice": result.choice}
        print(json.dumps(value, indent=2))
        return
    from indexmill.jobs.api.summary import print_summary
    from indexmill.jobs.console.tables import stdout_console

    console = stdout_console()
    if result.choice is not None:
        _show_choice(console, result.choice)
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
        f"{pruned['recall']:.3f}; {1 - pruned['edges_kept']:.0%} of the edges are others"
    )


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
