"""The frontier of settings of a build, as `indexmill tune` prints it for every kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from indexmill.jobs.console.tables import add_row, human_bytes, plain_table

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.pipeline.bootstrap import Interval
    from indexmill.pipeline.tune.report import BuildReport, BuildRow, Report

R = TypeVar("R", bound="BuildRow")


def show_frontier(
    console: Console,
    report: BuildReport[R],
    reads: str,
    headings: Sequence[str],
    setting: Callable[[R], list[str]],
    advice: Callable[[R], list[str]],
) -> None:
    """Print the settings that no other one beats, what was not tried, and what to take.

    Parameters
    ----------
    reads : str
        What is counted of a query.
    headings, setting
        Of the columns of a setting, and a row's cells in them.
    advice : callable
        Lines on the recommended row.
    """
    extrapolated = f"; {report.n_vectors:,} vectors extrapolated from samples"
    print_line(console, heading(report, reads, report.queries_from) + extrapolated)
    samples = [f"{size:,}" for size in report.sizes]
    columns = ["", *headings, *samples, "all", "95%", "memory", "index", "build"]
    table = plain_table("", columns, gap=2)
    for row in sorted(report.rows, key=lambda row: (row.cost.price, row.reads)):
        if not (row.on_frontier or row.recommended):
            continue
        growth, plan = row.growth, row.plan
        add_row(
            table,
            [
                "*" if row.recommended else "",
                *setting(row),
                *(number(reads) for reads in (*growth.reads, growth.outlook.reads)),
                interval(growth.outlook.interval()),
                human_bytes(row.cost.memory_bytes),
                human_bytes(row.cost.index_bytes),
                "-" if plan is None else f"{plan.seconds:,.0f} s",
            ],
        )
    console.print(table)
    lines = [f"not tried: {why}" for why in report.left_out]
    if report.recommended is not None:
        lines += advice(report.recommended)
    for line in lines:
        print_line(console, line)


def heading(report: Report[Any], reads: str, where: str) -> str:
    """Say what is counted at which target, and by which queries, which are from `where`."""
    at = report.request.target.words(report.request.k)
    return f"{reads} at {at}: {report.n_queries // 2:,} queries from {where}, which tuned nothing"


def print_line(console: Console, line: str) -> None:
    """Print a line as it is."""
    console.print(line, markup=False, soft_wrap=True)


def number(reads: float) -> str:
    """Print reads at the target."""
    return f"{reads:.1f}" if math.isfinite(reads) else "not reached"


def interval(ends: Interval) -> str:
    """Print the interval of reads."""
    low, high = ends
    return "-" if low is None or high is None else f"{low:.1f} to {high:.1f}"
