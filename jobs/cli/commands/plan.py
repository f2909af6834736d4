"""`indexmill plan`: what a build will take, before it is run, or how fast an index will be on a device."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.jobs.cli.job_options import job_command
from indexmill.jobs.cli.options import BeamWidth, InFlight, Json, K, Policy, Queries, Threads, examples

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.pipeline.plan import Plan
    from indexmill.pipeline.spec import BuildSpec

NAME = "plan"
EXAMPLES = examples(
    "indexmill plan job.toml",
    "indexmill plan --input base.u8bin --out base.index --memory 768MiB --json",
    "indexmill plan index --queries query.u8bin -L 50",
    "indexmill plan tables --queries query.u8bin --device cssd --device mine.json --threads 2",
    "indexmill plan tables --queries query.u8bin --target 2000",
)


def _plan_build(
    spec: BuildSpec,
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROFILE",
            help="JOB is an index: how many queries a second it answers on this device, by a shipped profile"
            " (hdd, cssd, cssd4, essd, xlfdd, xlfdd12) or a file of `indexmill device`. May repeat. (default all, and"
            " the device of the index if it was measured)",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            min=1e-3,
            metavar="QPS",
            help="JOB is an index: what a device needs for so many queries a second, reads and processor time of one.",
        ),
    ] = None,
    queries: Queries = None,
    k: K = 10,
    nprobe: Annotated[
        int | None, typer.Option(min=1, help="JOB is an index of kind ivf: lists that a query probes.")
    ] = None,
    policy: Policy = None,
    beam_width: BeamWidth = None,
    threads: Threads = 1,
    inflight: InFlight = None,
    json_: Json = False,
) -> None:
    """Predict a build's memory, scratch space and time, after at most 10 seconds of trying; build nothing.

    Where JOB is the directory of an index: predict its queries a second on devices, and what binds, after searching
    a sample of --queries in memory; -L, -S and --probes are then those of the search.
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.pipeline.plan import make_plan

    given = {"--device": device, "--queries": queries, "--target": target}
    if flag := next((name for name, value in given.items() if value), None):
        raise ConfigError(f"{flag}: for the plan of an index; name the directory of one that was built")
    plan = make_plan(spec)
    if json_:
        print(json.dumps(plan.to_dict(), indent=2))
    else:
        from indexmill.jobs.console.tables import stdout_console

        _show(stdout_console(), spec, plan)


def _plan_queries(values: dict[str, Any]) -> bool:
    """Predict queries if JOB is a directory."""
    path = values["job"]
    if path is None or not path.is_dir():
        return False
    from indexmill.jobs.console.tables import stdout_console
    from indexmill.jobs.devices import query_plans

    plan, hints = query_plans.plan_of(path, values)
    if values["json_"]:
        print(json.dumps(plan.to_dict(), indent=2))
        return True
    console = stdout_console()
    for line in query_plans.facts(plan):
        console.print(line, soft_wrap=True)
    console.print(query_plans.device_table(plan))
    for line in hints:
        console.print(line, markup=False, soft_wrap=True)
    return True


command = job_command(_plan_build, instead=_plan_queries)


def _show(console: Console, spec: BuildSpec, plan: Plan) -> None:
    from indexmill.jobs.console.tables import add_row, human_bytes, plain_table

    rows = {
        "peak memory": f"{human_bytes(plan.peak_memory_bytes)} of {human_bytes(spec.memory)}",
        "peak scratch": human_bytes(plan.peak_scratch_bytes)
        + ("" if spec.scratch is None else f" of {human_bytes(spec.scratch)}"),
        "time": f"{plan.seconds:,.0f} s",
        **_index_lines(plan),
        **({} if plan.note is None else {"note": plan.note}),
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
    """How the graph is cut, or what the tables of an LSH index or the lists of an IVF index will be."""
    from indexmill.jobs.console.tables import human_bytes

    shards, regions, lsh, ivf = (plan.facts.get(name) for name in ("shards", "regions", "lsh", "ivf"))
    if ivf is not None:
        batches = "one batch" if ivf["batches"] == 1 else f"{ivf['batches']:,} batches"
        return {
            "lists": f"{ivf['lists']:,} ({ivf['codec']}) in {batches} of {ivf['batch_vectors']:,} vectors",
            "index": human_bytes(ivf["index_bytes"]),
        }
    if lsh is not None:
        return {
            "hash": f"c={lsh['ratio']:g} w={lsh['width']:g} m={lsh['n_functions']} L={lsh['n_tables']} "
            f"S={lsh['candidates']} u={lsh['hash_bits']}, {lsh['n_radii']} radii from {lsh['first_radius']:.6g} on",
            "success": f"{lsh['success']:.3f}",
            "index": human_bytes(lsh["index_bytes"]),
        }
    parts, what = (regions, "regions, the largest") if regions else (shards, "shards")
    if parts is None or parts.n == 1:
        return {"graph": "in one piece"}
    return {
        "graph": f"{parts.n} {what} of about {parts.vectors:,} vectors, mean fanout {parts.mean_fanout:.2f}"
    }
