"""`indexmill plan`: what a build will take, before it is run."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from indexmill.jobs.job_options import job_command
from indexmill.jobs.options import Json, examples

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.pipeline.plan import Plan
    from indexmill.pipeline.spec import BuildSpec

NAME = "plan"
EXAMPLES = examples(
    "indexmill plan job.toml", "indexmill plan --input base.u8bin --out base.index --memory 768MiB --json"
)


@job_command
def command(spec: BuildSpec, json_: Json = False) -> None:
    """Predict a build's memory, scratch space and time, after at most 10 seconds of trying; build nothing."""
    from indexmill.pipeline.plan import make_plan

    plan = make_plan(spec)
    if json_:
        print(json.dumps({key: value for key, value in asdict(plan).items() if value is not None}, indent=2))
    else:
        from indexmill.jobs.tables import stdout_console

        _show(stdout_console(), spec, plan)


def _show(console: Console, spec: BuildSpec, plan: Plan) -> None:
    from indexmill.jobs.tables import add_row, human_bytes, plain_table

    rows = {
        "peak memory": f"{human_bytes(plan.peak_memory_bytes)} of {human_bytes(spec.memory)}",
        "peak scratch": human_bytes(plan.peak_scratch_bytes)
        + ("" if spec.scratch is None else f" of {human_bytes(spec.scratch)}"),
        "time": f"{plan.seconds:,.0f} s",
        **_index_lines(plan),
    }
    for name, value in rows.items():
        console.print(f"{name:<13}{value}", soft_wrap=True)
    table = plain_table("", ["stage", "seconds", "memory", "scratch"])
    for name, stage in plan.stages.items():
        cells = [
            f"{stage.seconds:,.1f}",
            human_bytes(stage.memory_bytes),
            human_bytes(stage.scratch_bytes),
        ]
        add_row(table, [name, *cells])
    console.print(table)


def _index_lines(plan: Plan) -> dict[str, str]:
    """How the graph is cut, or what the tables of an LSH index will be."""
    from indexmill.jobs.tables import human_bytes

    shards, lsh = plan.shards, plan.lsh
    if lsh is not None:
        return {
            "hash": f"c={lsh['ratio']:g} w={lsh['width']:g} m={lsh['n_functions']} L={lsh['n_tables']} "
            f"S={lsh['candidates']} u={lsh['hash_bits']}, {lsh['n_radii']} radii from {lsh['first_radius']:.6g} on",
            "success": f"{lsh['success']:.3f}",
            "index": human_bytes(lsh["index_bytes"]),
        }
    if shards is None or shards.n == 1:
        return {"graph": "in one piece"}
    return {
        "graph": f"{shards.n} shards of about {shards.vectors:,} vectors, mean fanout {shards.mean_fanout:.2f}"
    }
