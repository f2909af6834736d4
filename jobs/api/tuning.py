"""Request, report in words and job file of a tuning, shared by the command line and Python."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import ConfigError
from indexmill.jobs.choices import one_of, size_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console

    from indexmill.pipeline.spec import BuildSpec
    from indexmill.pipeline.tune.report import TuneReport, TuneRequest, TuneRow


def tune_request(
    spec: BuildSpec,
    target_recall: float,
    k: int,
    max_reads: float | None,
    max_memory: int | str | None,
    effort: str,
    queries: NDArray[Any] | None,
    work: str | os.PathLike[str] | None,
) -> TuneRequest:
    """Check what is asked for; `max_memory` in bytes or as ``"4GiB"``.

    Raises
    ------
    ConfigError
        Naming the option.
    """
    from indexmill.pipeline.relayout.tuning import as_given
    from indexmill.pipeline.tune.report import TuneRequest
    from indexmill.pipeline.tune.run import EFFORTS

    one_of(effort, tuple(EFFORTS), "--effort")
    if not 0 < target_recall < 1:
        raise ConfigError(f"target_recall: expected more than 0 and less than 1, got {target_recall}")
    if max_reads is not None and not 1 <= max_reads < math.inf:
        raise ConfigError(f"max_reads: a search reads at least one page, and finitely many, got {max_reads}")
    most = None if max_memory is None else size_of(max_memory, "max_memory")
    given = as_given(queries, None)
    asked = None if given is None else given.vectors
    return TuneRequest(spec, target_recall, k, max_reads, most, effort, asked, work)


def show_tuned(report: TuneReport) -> None:
    """Print the frontier, and what to take."""
    from indexmill.jobs.console.tables import stdout_console

    console = stdout_console()
    _show_table(console, report)
    lines = [f"not tried: {why}" for why in report.left_out]
    if report.recommended is not None:
        lines += _words(report, report.recommended)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _show_table(console: Console, report: TuneReport) -> None:
    from indexmill.jobs.console.tables import add_row, human_bytes, plain_table

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
                str(row.candidate.pq_bytes),
                *(_reads(reads) for reads in (*row.reads, row.outlook.reads)),
                _interval(row),
                human_bytes(row.cost.memory_bytes),
                human_bytes(row.cost.index_bytes),
                "-" if plan is None else f"{plan.seconds:,.0f} s",
            ],
        )
    console.print(table)


def _words(report: TuneReport, row: TuneRow) -> list[str]:
    """Lines on how sure a recommendation is, what to take, and how to check it."""
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
        f"build with * ({_flags(row)}), search with L of about {row.list_size}, and measure that: indexmill score"
    )
    return lines


def _flags(row: TuneRow) -> str:
    r, size, alpha = row.candidate.graph
    return f"-R {r} -L {size} --alpha {alpha:g} --pq-bytes {row.candidate.pq_bytes}"


def _reads(reads: float) -> str:
    return f"{reads:.1f}" if math.isfinite(reads) else "not reached"


def _interval(row: TuneRow) -> str:
    low, high = row.outlook.interval()
    return "-" if low is None or high is None else f"{low:.1f} to {high:.1f}"


def write_job(report: TuneReport, path: Path) -> None:
    """Write the recommended job as TOML that `build` takes; what is default stays out of it."""
    from indexmill.formats.pagefile.atomic import atomic_write

    with atomic_write(path) as file:
        file.write(job_text(report).encode())


def job_text(report: TuneReport) -> str:
    """Return the recommended job as TOML; local paths are absolute, so that it may lie anywhere."""
    job = report.job
    assert job is not None
    assert report.parameters is not None
    top = job.model_dump(exclude_defaults=True, exclude={"parameters", "work", "force"})
    top["input"] = [_absolute(one) for one in job.input]
    top["out"] = _absolute(job.out)
    return "\n".join([*_lines(top), "", "[parameters]", *_lines(report.parameters)]) + "\n"


def _lines(values: dict[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in values.items()]


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)


def _toml(value: Any) -> str:
    """Numbers, booleans, strings and lists of them are the same in TOML and JSON, except for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
