"""What `tune` prints of graphs: settings of a build."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from indexmill.jobs.console.tables import add_row, human_bytes, plain_table

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.pipeline.tune.report import TuneReport, TuneRow


def show_graphs(console: Console, report: TuneReport) -> None:
    """Print the frontier of a build, and what to take."""
    _show_table(console, report)
    lines = [f"not tried: {why}" for why in report.left_out]
    if report.recommended is not None:
        lines += _words(report, report.recommended)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _show_table(console: Console, report: TuneReport) -> None:
    asked = report.request
    where = "the input" if asked.queries is None else "the caller"
    title = (
        f"page reads a query at recall@{asked.k} {asked.target_recall:g}: {report.n_queries // 2:,} queries from "
        f"{where}, which tuned nothing; {report.n_vectors:,} vectors extrapolated from samples"
    )
    console.print(title, markup=False, soft_wrap=True)
    samples = [f"{size:,}" for size in report.sizes]
    headings = ["", "R", "L", "alpha", "code", *samples, "all", "95%", "memory", "index", "build"]
    table = plain_table("", headings, gap=2)
    for row in sorted(report.rows, key=lambda row: (row.cost.price, row.cost.reads)):
        if not (row.on_frontier or row.recommended):
            continue
        graph, plan = row.candidate.graph, row.plan
        add_row(
            table,
            [
                "*" if row.recommended else "",
                str(graph.max_degree),
                str(graph.build_list_size),
                f"{graph.alpha:g}",
                str(row.candidate.code),
                *(_reads(reads) for reads in (*row.reads, row.outlook.reads)),
                _interval(row),
                human_bytes(row.cost.memory_bytes),
                human_bytes(row.cost.index_bytes),
                "-" if plan is None else f"{plan.seconds:,.0f} s",
            ],
        )
    console.print(table)


def _words(report: TuneReport, row: TuneRow) -> list[str]:
    """Say how sure a recommendation is, what to take, and how to check it."""
    asked, recall, last, reads = report.request, row.recall, report.sizes[-1], row.reads
    lines = []
    if math.isfinite(reads[-1] - reads[0]):
        lines.append(
            f"its page reads grew from {reads[0]:.1f} to {reads[-1]:.1f} over {math.log2(last / report.sizes[0]):.1f} "
            f"doublings of the vectors; extrapolated over {math.log2(report.n_vectors / last):.1f} more"
        )
    high = row.outlook.interval()[1]
    if asked.max_reads is not None and high is not None and high > asked.max_reads:
        lines.append(f"up to {high:.1f} reads are possible, more than --max-reads {asked.max_reads:g}")
    lines.append(
        f"on {last:,} vectors L={row.sample_list_size}, as one half of the queries chose it, had recall "
        f"{recall.mean:.4f} [{recall.low:.4f}, {recall.high:.4f}] with the other"
    )
    lines.append(
        f"build with * ({_flags(report, row)}), search with L of about {row.list_size}, and measure that: "
        "indexmill score"
    )
    return lines


def _flags(report: TuneReport, row: TuneRow) -> str:
    assert report.parameters is not None
    (r, size, alpha), p = row.candidate.graph, report.parameters
    return (
        f"--builder {p['builder']} -R {r} -L {size} --alpha {alpha:g} --pq-bytes {p['pq_bytes']} "
        f"--pq-rotation {p['pq_rotation']} --node-dtype {p['node_dtype']}"
        f"{' --keep-vectors' if p.get('keep_vectors') else ''}"
    )


def _reads(reads: float) -> str:
    return f"{reads:.1f}" if math.isfinite(reads) else "not reached"


def _interval(row: TuneRow) -> str:
    low, high = row.outlook.interval()
    return "-" if low is None or high is None else f"{low:.1f} to {high:.1f}"
