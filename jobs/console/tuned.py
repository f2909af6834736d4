"""What `tune` prints of hash tables: settings of a build, and of the searches of an index."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from indexmill.jobs.console.tables import add_row, human_bytes, plain_table, stdout_console

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.pipeline.bootstrap import Interval
    from indexmill.pipeline.tune.tables.report import SearchesReport, TableRow, TablesReport


def show_tables(console: Console, report: TablesReport) -> None:
    """Print the frontier of a build, and what to take."""
    asked = report.request
    where = "the input" if asked.queries is None else "the caller"
    _print(
        console,
        f"work of a query in reads at {report.target.words(asked.k)}: {report.n_queries // 2:,} queries from {where}, "
        f"which tuned nothing; {report.n_vectors:,} vectors extrapolated from samples",
    )
    samples = [f"{size:,}" for size in report.sizes]
    headings = ["", "gamma", "w", "probes", "m", "L", "S", *samples, "all", "95%", "memory", "index", "build"]
    table = plain_table("", headings, gap=2)
    for row in sorted(report.rows, key=lambda row: (row.cost.price, row.cost.reads)):
        if not (row.on_frontier or row.recommended):
            continue
        add_row(
            table,
            [
                "*" if row.recommended else "",
                f"{row.candidate.gamma:g}",
                f"{row.candidate.width:g}",
                str(row.candidate.probes),
                str(row.solved.n_functions),
                str(row.solved.n_tables),
                str(row.candidates) if row.candidates else "-",
                *(_number(work) for work in (*row.work, row.outlook.reads)),
                _interval(row.outlook.interval()),
                human_bytes(row.cost.memory_bytes),
                human_bytes(row.cost.index_bytes),
                "-" if row.plan is None else f"{row.plan.seconds:,.0f} s",
            ],
        )
    console.print(table)
    for why in report.left_out:
        _print(console, f"not tried: {why}")
    if report.recommended is not None:
        for line in _words(report, report.recommended):
            _print(console, line)


def _words(report: TablesReport, row: TableRow) -> list[str]:
    """Say how good the recommended setting was, what to take, and how to check it."""
    found, last, k = row.reached, report.sizes[-1], report.request.k
    recall = found.recall
    ratio = "" if report.target.measure == "recall" else f"overall ratio {found.ratio:.4f} and "
    return [
        f"on {last:,} vectors S={found.candidates}, as one half of the queries chose it, had {ratio}recall@{k} "
        f"{recall.mean:.4f} [{recall.low:.4f}, {recall.high:.4f}] with the other, in {found.reads:.1f} reads and "
        f"{found.distances:.0f} distances",
        f"build with * (--kind lsh {report.flags}), and tune the searches of that index: indexmill tune DIR",
    ]


def show_searches(report: SearchesReport, index: str) -> None:
    """Print what the searches of an index take with each number of probes, and what to take."""
    console = stdout_console()
    where = "the caller" if report.are_given else "the index, each left out of its own results"
    _print(
        console,
        f"work of a query in reads at {report.target.words(report.k)}: {report.n_queries // 2:,} queries from {where}, "
        "which tuned nothing",
    )
    headings = ["", "probes", "S", "work", "95%", "reads", "distances", "ratio", f"recall@{report.k}"]
    table = plain_table("", headings, gap=2)
    for row in report.rows:
        found = row.reached
        add_row(
            table,
            [
                "*" if row.recommended else "",
                str(row.probes),
                str(found.candidates) if found.candidates else "-",
                _number(found.work),
                _interval(found.interval),
                f"{found.reads:.1f}",
                f"{found.distances:.0f}",
                f"{found.ratio:.4f}",
                f"{found.recall.mean:.4f}",
            ],
        )
    console.print(table)
    if (best := report.recommended) is not None:
        _print(
            console,
            f"search with *: indexmill search {index} --queries FILE -S {best.reached.candidates} "
            f"--probes {best.probes}",
        )


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def _number(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "not reached"


def _interval(interval: Interval) -> str:
    low, high = interval
    return "-" if low is None or high is None else f"{low:.1f} to {high:.1f}"
