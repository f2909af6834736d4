"""`indexmill join`: the neighbours of many queries in an IVF index, batch after batch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.jobs.options.shared import Column, Force, Json, K, Memory, RayAddress, Workers, examples

if TYPE_CHECKING:
    from indexmill.pipeline.join.options import JoinReport
    from indexmill.pipeline.join.plan import JoinPlan

NAME = "join"
EXAMPLES = examples(
    "indexmill join queries.u8bin base.ivf -k 10 --nprobe 32 --out result.parquet",
    "indexmill join orders.parquet base.ivf --id-column order --recall 0.95 --out result.parquet",
    "indexmill join queries.u8bin base.ivf --nprobe 4 --platform drives.toml --plan",
    "indexmill join queries.u8bin /shared/base.ivf --nprobe 32 --executor ray --out /shared/result.parquet",
)


@dataclass(frozen=True, kw_only=True)
class How:
    """The fields of `JoinRequest`."""

    k: K = 10
    nprobe: Annotated[
        int | None,
        typer.Option(metavar="P", help="Lists that a query probes in every batch; all of them: exact."),
    ] = None
    recall: Annotated[
        float | None,
        typer.Option(
            metavar="R", help="Instead of --nprobe: the recall to reach; 200 of the queries choose nprobe."
        ),
    ] = None
    column: Column = None
    id_column: Annotated[str | None, typer.Option(help="Column of the queries' own ids.")] = None
    memory: Memory = "8GiB"
    workers: Workers = 2
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep partial results here until the join is finished; default: beside FILE."
        ),
    ] = None
    executor: Annotated[
        str,
        typer.Option(metavar="local|ray", help="Where batches are searched; ray: on the nodes of a cluster."),
    ] = "local"
    ray_address: RayAddress = None
    platform: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml", help="Divide the batches among the workers that this file describes."
        ),
    ] = None
    force: Force = False


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `join`."""

    queries: Annotated[str, typer.Argument(metavar="QUERIES", help="Query vectors, in any input format.")]
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="An index of kind ivf.")]
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.parquet", help="The result to write (required).")
    ] = None
    how: How
    plan: Annotated[
        bool, typer.Option("--plan", help="Print how --platform divides the batches, and search nothing.")
    ] = False
    json_: Json = False


def command(options: Options) -> None:
    """Find the nearest vectors of many queries at once, reading every batch of an index once, front to back.

    Run again, a join that was killed, or that found a batch damaged, resumes with what is left.
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.api.joining import JoinRequest, join_files, plan_files
    from indexmill.jobs.console.progress import stderr_progress

    request = JoinRequest(**vars(options.how))
    if options.plan:
        if options.how.platform is None:
            raise ConfigError("--plan: shows how --platform divides a join; name its file")
        planned = plan_files(options.queries, options.index, request)
        print(json.dumps(_plan_facts(planned), indent=2) if options.json_ else _plan_text(planned))
        return
    if options.out is None:
        raise ConfigError("--out: missing; name the Parquet file to write")
    with stderr_progress() as progress:
        report = join_files(options.queries, options.index, options.out, request, progress)
    facts = {
        "out": str(options.out),
        **{name: value for name, value in asdict(report).items() if value is not None},
    }
    print(json.dumps(facts, indent=2) if options.json_ else _report_text(options.out, report))


def _report_text(out: Path | None, report: JoinReport) -> str:
    learnt = ""
    if report.recall is not None:
        interval = f"[{report.recall_low:.4f}, {report.recall_high:.4f}]"
        learnt = f" (recall {report.recall:.4f} {interval} of the queries that chose it)"
    lines = [f"{out}: {report.rows:,} rows of {report.queries:,} queries at nprobe {report.nprobe:,}{learnt}"]
    if report.short:
        lines.append(
            f"{report.short:,} queries have fewer than {report.k} neighbours in the lists they probe (column short)"
        )
    if report.load_seconds:
        rate = report.load_bytes / report.load_seconds / 1e6
        lines.append(
            f"{report.batches:,} batches, {report.reused:,} of them found from before: loaded in "
            f"{report.load_seconds:.2f} s ({rate:,.0f} MB/s), searched in {report.search_seconds:.2f} s, both in "
            f"{report.seconds:.2f} s"
        )
    if report.copied_bytes:
        lines.append(f"{report.copied_bytes:,} bytes were copied to the paths of workers")
    for run in report.workers or []:
        lines.append(
            f"{run.name}: {len(run.batches):,} batches ({run.planned:,} planned, {run.stolen:,} taken from others), "
            f"done after {run.seconds:.2f} s ({run.predicted_seconds:.2f} planned)"
        )
    return "\n".join(lines)


def _plan_facts(planned: JoinPlan) -> list[dict[str, Any]]:
    rows = zip(planned.shares, planned.simulated, strict=True)
    return [
        {
            "worker": share.worker.name,
            "batches": len(share.pieces),
            "vectors": round(share.rows),
            "seconds": round(share.seconds, 6),
            "seconds_balanced": round(run.seconds, 6),
        }
        for share, run in rows
    ]


def _plan_text(planned: JoinPlan) -> str:
    lines = [
        f"{row['worker']}: {row['batches']:,} batches of {row['vectors']:,} vectors, {row['seconds']:.2f} s"
        for row in _plan_facts(planned)
    ]
    end = max(run.seconds for run in planned.simulated)
    return "\n".join([*lines, f"all: {end:.2f} s, as workers that have finished take batches of others"])
