"""`indexmill tune`: parameters of a graph for a recall, found on samples of the vectors."""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.jobs.cli.job_options import job_command, job_options, resolve_job
from indexmill.jobs.cli.options import Force, Json, K, Queries, examples

if TYPE_CHECKING:
    from indexmill.pipeline.spec import BuildSpec

NAME = "tune"
EXAMPLES = examples(
    "indexmill tune base.u8bin --target-recall 0.95 --max-reads 40",
    "indexmill tune words.parquet --metric cosine --queries asked.npy --out job.toml",
    "indexmill tune base.u8bin --max-memory 40MB -R 32 --effort low --json",
    "indexmill tune job.toml --target-recall 0.98",
)
#: Options of a job that tuning asks for, beside those that it tunes.
_JOB = (
    "column", "metric", "builder", "saturate", "passes", "build_codes", "pq_rotation", "compute", "order",
    "node_dtype", "navigation", "seed", "memory", "workers",
)  # fmt: skip
#: Where the recommended job builds its index, unless a job file says so.
INDEX_SUFFIX = ".index"


def _tune(
    spec: BuildSpec,
    target_recall: Annotated[
        float, typer.Option(min=0.01, max=0.9999, help="Share of the k nearest that searches are to find.")
    ] = 0.95,
    max_reads: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Page reads a query at most: recommend the least memory and space within it. (default the fewest"
            " reads)",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="What searches may hold in memory, mostly codes. (default no limit)"
        ),
    ] = None,
    k: K = 10,
    queries: Queries = None,
    effort: Annotated[
        str,
        typer.Option(
            metavar="low|normal|high",
            help="Vectors of the largest sample: 25,000, 100,000 or 400,000; more take longer and foretell better.",
        ),
    ] = "normal",
    out: Annotated[
        Path | None, typer.Option(metavar="JOB.toml", help="Write the recommended job here.")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Scratch files, the samples and their graphs; default: the system's folder for such files.",
        ),
    ] = None,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Find R, L, alpha and the size of codes for a recall, on samples of the vectors; keep no index.

    Samples of growing size are built and searched as `build` and `search` do; what page reads grow by from one to the
    next is carried on to all vectors. Parameters that are given stay as they are. Settings are chosen by one half of
    the queries and reported by the other.
    """
    from indexmill.formats.errors import NothingToGain
    from indexmill.formats.sources.source import read_queries
    from indexmill.jobs.api.tuning import show_tuned, tune_request, write_job
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.search.results import check_writable
    from indexmill.pipeline.build import open_input
    from indexmill.pipeline.tune.run import run_tune

    if out is not None:
        check_writable(out, force)
    asked = None if queries is None else read_queries(queries, spec.column)
    request = tune_request(spec, target_recall, k, max_reads, max_memory, effort, asked, work)
    with stderr_progress() as progress:
        report = run_tune(request, open_input(spec), progress)
    if json_:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        show_tuned(report)
    if report.job is None:
        raise NothingToGain(str(report.failure()))
    if out is not None:
        write_job(report, out)


def _resolve(
    *,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...", help="Vectors, as `build --input` takes them, or a job file that names them."
        ),
    ],
    max_degree: Annotated[
        int | None, typer.Option("-R", "--max-degree", help="Keep to so many neighbours. (default tuned)")
    ] = None,
    build_list_size: Annotated[
        int | None,
        typer.Option("-L", "--build-list-size", help="Keep to so many candidates. (default tuned)"),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Keep to this pruning slack. (default tuned)")] = None,
    pq_bytes: Annotated[
        int | None, typer.Option(help="Keep to codes of so many bytes. (default tuned)")
    ] = None,
    **options: Any,
) -> BuildSpec:
    """Make the job that is tuned: of a job file, or of its inputs."""
    options |= {
        "max_degree": max_degree, "build_list_size": build_list_size, "alpha": alpha, "pq_bytes": pq_bytes,
    }  # fmt: skip
    if len(inputs) == 1 and inputs[0].endswith(".toml"):
        return resolve_job(job=Path(inputs[0]), **options)
    return resolve_job(input=inputs, out=index_name(inputs[0]), **options)


def index_name(source: str) -> str:
    """Return what to call the index of an input: by its file, or by the folder that a pattern looks into."""
    named = next((part for part in reversed(PurePath(source).parts) if not set(part) & set("*?[")), "")
    return (PurePath(named).stem or "tuned") + INDEX_SUFFIX


command = job_command(_tune, resolve=job_options(_resolve, _JOB))
