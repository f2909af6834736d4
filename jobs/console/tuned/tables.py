"""The settings that `indexmill tune` found for hash tables: of a build, and of the searches of an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexmill.jobs.console.tables import add_row, plain_table, stdout_console
from indexmill.jobs.console.tuned.frontier import heading, interval, number, print_line, show_frontier

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.pipeline.tune.tables.report import SearchesReport, TableRow, TablesReport

#: What is counted of a query.
_WORK = "work of a query in reads"


def show_tables(console: Console, report: TablesReport) -> None:
    """Print the frontier of a build, and what to take."""
    headings = ["gamma", "w", "probes", "m", "L", "S"]
    show_frontier(console, report, _WORK, headings, _setting, lambda row: _advice(report, row))


def _setting(row: TableRow) -> list[str]:
    tried, solved = row.candidate, row.solved
    return [
        f"{tried.gamma:g}",
        f"{tried.width:g}",
        str(tried.probes),
        str(solved.n_functions),
        str(solved.n_tables),
        str(row.list_size or "-"),
    ]


def _advice(report: TablesReport, row: TableRow) -> list[str]:
    """Say how good the recommended setting was, what to take, and how to check it."""
    found, last, asked = row.reached, report.sizes[-1], report.request
    recall = found.recall
    ratio = "" if asked.target.measure == "recall" else f"overall ratio {found.ratio:.4f} and "
    return [
        f"on {last:,} vectors S={found.list_size}, as one half of the queries chose it, had {ratio}recall@{asked.k} "
        f"{recall.mean:.4f} [{recall.low:.4f}, {recall.high:.4f}] with the other, in {found.reads:.1f} reads and "
        f"{found.distances:.0f} distances",
        f"build with * (--kind lsh {report.flags}), and tune the searches of that index: indexmill tune DIR",
    ]


def show_searches(report: SearchesReport, index: str) -> None:
    """Print what the searches of an index take with each number of probes, and what to take."""
    console = stdout_console()
    left_out = ", each left out of its own results" if report.request.queries is None else ""
    print_line(console, heading(report, _WORK, report.queries_from + left_out))
    names = ["", "probes", "S", "work", "95%", "reads", "distances", "ratio", f"recall@{report.request.k}"]
    table = plain_table("", names, gap=2)
    for row in report.rows:
        found = row.reached
        add_row(
            table,
            [
                "*" if row.recommended else "",
                str(row.probes),
                str(found.list_size or "-"),
                number(found.work),
                interval(found.interval),
                f"{found.reads:.1f}",
                f"{found.distances:.0f}",
                f"{found.ratio:.4f}",
                f"{found.recall.mean:.4f}",
            ],
        )
    console.print(table)
    if (best := report.recommended) is not None:
        print_line(
            console,
            f"search with *: indexmill search {index} --queries FILE -S {best.reached.list_size} "
            f"--probes {best.probes}",
        )
