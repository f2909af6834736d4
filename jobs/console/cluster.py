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
        "divided": _divided(plan),
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
    """Say with which options to build, and what other budgets would take."""
    chosen = next(cut for cut in plan.cuts if cut.memory_bytes == plan.memory_bytes)
    others = [f"{_cut(cut)}: {_long(cut.seconds)}" for cut in plan.cuts if cut is not chosen]
    how = "" if plan.build_with is None else f": build with {plan.build_with}"
    return _pieces(chosen) + how + (f"; others: {', '.join(others)}" if others else "")


def _divided(plan: ClusterPlan) -> str:
    """Say whether the index is built in pieces that several nodes build side by side, and why."""
    chosen = next(cut for cut in plan.cuts if cut.memory_bytes == plan.memory_bytes)
    whole, fastest = plan.cuts[0], min(plan.cuts, key=lambda cut: cut.seconds)
    kept = f"the memory of a node allows no fewer than {whole.pieces:,} pieces"
    if chosen is not whole:
        why = f"{_pieces(chosen)} the build takes {_long(chosen.seconds)}, {_pieces(whole)} {_long(whole.seconds)}"
        return f"yes: {why}" if whole.pieces == 1 else f"yes: {kept}, and {why}"
    if whole.pieces > 1:
        return f"yes: {kept}"
    if len(plan.cuts) == 1:
        return "no: no smaller budget makes the same index in more pieces"
    if fastest is whole:
        return f"no: in one piece the build takes {_long(whole.seconds)}, which more pieces do not shorten"
    return (
        f"no: in one piece the build takes {_long(whole.seconds)}, and {_pieces(fastest)} {_long(fastest.seconds)}, "
        "which saves too little"
    )


def _cut(cut: Cut) -> str:
    return f"{_pieces(cut)} with --memory {cut.memory_bytes >> 20}MiB"


def _pieces(cut: Cut) -> str:
    return "in one piece" if cut.pieces == 1 else f"in {cut.pieces:,} pieces"


def _long(seconds: float) -> str:
    return f"{seconds / _HOUR:,.1f} hours" if seconds >= _HOUR else f"{seconds:,.0f} s"
