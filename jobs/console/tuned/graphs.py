"""The settings that `indexmill tune` found for the build of a graph."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from indexmill.jobs.console.tuned.frontier import show_frontier

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.pipeline.tune.graphs.report import GraphRow, GraphsReport


def show_graphs(console: Console, report: GraphsReport) -> None:
    """Print the frontier of a build, and what to take."""
    headings = ["R", "L", "alpha", "code"]
    show_frontier(console, report, "page reads a query", headings, _setting, lambda row: _advice(report, row))


def _setting(row: GraphRow) -> list[str]:
    graph = row.candidate.graph
    return [str(graph.max_degree), str(graph.build_list_size), f"{graph.alpha:g}", str(row.candidate.code)]


def _advice(report: GraphsReport, row: GraphRow) -> list[str]:
    """Say how sure a recommendation is, what to take, and how to check it."""
    limit, found, last, reads = report.request.max_reads, row.reached, report.sizes[-1], row.growth.reads
    lines = []
    if math.isfinite(reads[-1] - reads[0]):
        lines.append(
            f"its page reads grew from {reads[0]:.1f} to {reads[-1]:.1f} over {math.log2(last / report.sizes[0]):.1f} "
            f"doublings of the vectors; extrapolated over {math.log2(report.n_vectors / last):.1f} more"
        )
    high = row.growth.outlook.interval()[1]
    if limit is not None and high is not None and high > limit:
        lines.append(f"up to {high:.1f} reads are possible, more than --max-reads {limit:g}")
    recall = found.recall
    lines.append(
        f"on {last:,} vectors L={found.list_size}, as one half of the queries chose it, had recall "
        f"{recall.mean:.4f} [{recall.low:.4f}, {recall.high:.4f}] with the other"
    )
    lines.append(
        f"build with * ({_flags(report, row)}), search with L of about {row.list_size}, and measure that: "
        "indexmill score"
    )
    return lines


def _flags(report: GraphsReport, row: GraphRow) -> str:
    assert report.parameters is not None
    (r, size, alpha), p = row.candidate.graph, report.parameters
    return (
        f"--builder {p['builder']} -R {r} -L {size} --alpha {alpha:g} --pq-bytes {p['pq_bytes']} "
        f"--pq-rotation {p['pq_rotation']} --node-dtype {p['node_dtype']}"
        f"{' --keep-vectors' if p.get('keep_vectors') else ''}"
    )
