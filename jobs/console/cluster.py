"""The plan of a cluster in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexmill.jobs.console.tables import add_row, human_bytes, plain_table

if TYPE_CHECKING:
    from rich.table import Table

    from indexmill.pipeline.cluster import ClusterPlan, Cut

_HOUR = 3600


def cluster_lines(plan: ClusterPlan) -> dict[str, str]:
    """Return the facts of the whole build, by name."""
    node = f"{plan.node_cores} {'core' if plan.node_cores == 1 else 'cores'} and {human_bytes(plan.node_memory_bytes)}"
    bound = sum(step.seconds for step in plan.stages.values() if step.binds == plan.binds)
    return {
        "cluster": f"{plan.nodes:,} {'node' if plan.nodes == 1 else 'nodes'} of {node}",
        "vectors": f"{plan.vectors:,}",
        "time": f"{_long(plan.seconds)}, {plan.node_seconds / _HOUR:,.2f} node-hours",
        "binds": f"{plan.binds}, {bound / plan.seconds:.0%} of the time",
        "storage": f"{human_bytes(plan.read_bytes)} read, {human_bytes(plan.written_bytes)} written by all nodes",
        "node disk": f"{human_bytes(plan.mirror_bytes)} for the mirror of a node",
        "cut": _chosen(plan),
        **({} if plan.note is None else {"note": plan.note}),
    }


def cluster_table(plan: ClusterPlan) -> Table:
    """Return a table of the stages."""
    table = plain_table("", ["stage", "seconds", "tasks", "nodes", "read", "written", "binds"])
    for name, step in plan.stages.items():
        where = f"{step.nodes:,}" if step.nodes else "command"
        moved = [human_bytes(step.read_bytes), human_bytes(step.written_bytes)]
        add_row(table, [name, f"{step.seconds:,.1f}", f"{step.tasks:,}", where, *moved, step.binds])
    return table


def _chosen(plan: ClusterPlan) -> str:
    """Say with which --memory to build, and what other budgets would take."""
    chosen = next(cut for cut in plan.cuts if cut.memory_bytes == plan.memory_bytes)
    others = [f"{_cut(cut)}: {_long(cut.seconds)}" for cut in plan.cuts if cut is not chosen]
    return _cut(chosen) + (f"; others: {', '.join(others)}" if others else "")


def _cut(cut: Cut) -> str:
    pieces = "in one piece" if cut.pieces == 1 else f"in {cut.pieces:,} pieces"
    return f"{pieces} with --memory {cut.memory_bytes >> 20}MiB"


def _long(seconds: float) -> str:
    return f"{seconds / _HOUR:,.1f} hours" if seconds >= _HOUR else f"{seconds:,.0f} s"
