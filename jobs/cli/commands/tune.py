"""`indexmill tune`: parameters of a graph or of hash tables, found on samples of the vectors, or of their searches."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from indexmill.jobs.kinds.job import JobOptions
from indexmill.jobs.options.declare import OUTPUT_PANEL
from indexmill.jobs.options.shared import Force, Json, K, Queries, examples

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.jobs.api.tuning import Wanted as Given
    from indexmill.pipeline.spec import BuildSpec
    from indexmill.pipeline.tune.report import BuildReport

NAME = "tune"
EXAMPLES = examples(
    "indexmill tune base.u8bin --target-recall 0.95 --max-reads 40",
    "indexmill tune words.parquet --metric cosine --queries asked.npy --out job.toml",
    "indexmill tune base.u8bin --search-memory 40MB -R 32 --effort low --json",
    "indexmill tune job.toml --target-recall 0.98",
    "indexmill tune base.u8bin --kind lsh --target-ratio 1.05 -k 1",
    "indexmill tune words.lsh --queries asked.npy --target-recall 0.6",
)
#: Suffix of the index that the recommended job builds, unless a job file names one.
INDEX_SUFFIX = ".index"


class TunedJob(JobOptions):
    """Options of the job to tune; those that tuning chooses stay as they are if they are given."""

    DEFAULTS: ClassVar = {
        **dict.fromkeys(
            ("max_degree", "build_list_size", "alpha", "pq_bytes", "width", "gamma", "probes", "candidates"),
            "tuned",
        ),
        "search_memory": "no limit",
    }
    NAMES = (
        *DEFAULTS, "kind", "column", "metric", "builder", "saturate", "passes", "build_codes", "pq_rotation", "compute",
        "order", "node_dtype", "keep_vectors", "navigation", "ratio", "success", "n_functions", "n_tables", "n_radii",
        "first_radius", "hash_bits", "block_bytes", "seed", "memory", "workers",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What searches are to reach."""

    PANEL: ClassVar = "Searches"
    target_recall: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=0.9999,
            help="Share of the k nearest that searches are to find. (default 0.95 of a graph)",
        ),
    ] = None
    target_ratio: Annotated[
        float | None,
        typer.Option(
            min=1.0001,
            help="kind lsh: overall ratio of found to true distances that searches are to have, in place of a recall. "
            "(default 1.05)",
        ),
    ] = None
    max_reads: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Most page reads of a query: recommend the least memory and space within it. (default the fewest "
            "reads)",
        ),
    ] = None
    k: K = 10
    queries: Queries = None
    effort: Annotated[
        str,
        typer.Option(
            metavar="low|normal|high",
            help="Vectors of the largest sample: 25,000, 100,000 or 400,000; more take longer and predict better.",
        ),
    ] = "normal"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `tune`."""

    PANEL: ClassVar = OUTPUT_PANEL
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Vectors, as `build --input` takes them, or a job file that names them; or an index of kind lsh, "
            "whose searches are tuned.",
        ),
    ]
    wanted: Wanted
    given: TunedJob
    out: Annotated[Path | None, typer.Option(metavar="JOB.toml", help="Write the recommended job here.")] = (
        None
    )
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Scratch files, the samples and their graphs; default: the system's folder for such files.",
        ),
    ] = None
    force: Force = False
    json_: Json = False


def command(options: Options) -> None:
    """Find parameters of an index for a recall or a ratio, on samples of the vectors; keep no index.

    Of a graph R, L, alpha, codes and nodes; of hash tables gamma, w, probes and S, or probes and S of the searches of
    an index that is there. Samples of growing size are built and searched as `build` and `search` do, and their reads
    are extrapolated to all vectors. Parameters that are given stay as they are. Settings are chosen by one half of the
    queries and reported by the other.
    """
    from indexmill.jobs.api.tuning import is_index

    if len(options.inputs) == 1 and is_index(options.inputs[0]):
        _tune_searches(options)
    else:
        _tune_build(options)


def _tune_searches(options: Options) -> None:
    """Tune the searches of an index."""
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.api.tuning import tune_index
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.console.tuned.tables import show_searches

    if options.out is not None:
        raise ConfigError(
            "--out: for the job of a build, and the searches of an index are tuned; leave it out"
        )
    given = {
        name: value for name, value in options.given.given.items() if value is not None and value is not False
    }
    wanted = _wanted(options, given.pop("column", None))
    with stderr_progress() as progress:
        report = tune_index(options.inputs[0], wanted, given, progress)
    if options.json_:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        show_searches(report, options.inputs[0])
    _check_found(report.failure())


def _tune_build(options: Options) -> None:
    """Tune the build of vectors, or of a job."""
    from indexmill.jobs.api.tuning import tune_request, write_job
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.search.results import check_writable
    from indexmill.pipeline.build import open_input
    from indexmill.pipeline.tune.kinds import tuner_of

    spec = _job(options.inputs, options.given)
    if options.out is not None:
        check_writable(options.out, options.force)
        _check_not_read(options.out, [*spec.input, options.wanted.queries, spec.query_sample])
    request = tune_request(spec, _wanted(options, spec.column))
    with stderr_progress() as progress:
        report = tuner_of(spec.parameters.kind).build(request, open_input(spec), progress)
    if options.json_:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        _show(report, spec.parameters.kind)
    _check_found(report.failure())
    if options.out is not None:
        write_job(report, options.out)


def _check_not_read(out: Path, inputs: list[str | None]) -> None:
    """Refuse to replace a file of vectors that are to be read; None stands for no input.

    Raises
    ------
    ConfigError, InputError
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.formats.sources.filesystem import resolve
    from indexmill.formats.sources.source import SUFFIXES

    if not out.exists():
        return
    for file in resolve([one for one in inputs if one is not None], SUFFIXES):
        if file.is_local and out.samefile(file.path):
            raise ConfigError(f"out: {out} is a file to read; name another one")


def _wanted(options: Options, column: str | None) -> Given:
    """Return what searches are to reach, with the queries; `column` holds these, in a file of several columns."""
    from indexmill.formats.sources.source import read_queries
    from indexmill.jobs.api.tuning import Wanted as Given

    wanted = options.wanted
    asked = None if wanted.queries is None else read_queries(wanted.queries, column)
    return Given(
        wanted.target_recall,
        wanted.target_ratio,
        wanted.k,
        wanted.max_reads,
        wanted.effort,
        asked,
        options.work,
    )


def _check_found(failure: str | None) -> None:
    """Raise NothingToGain if no setting reaches what was asked."""
    from indexmill.formats.errors import NothingToGain

    if failure is not None:
        raise NothingToGain(failure)


def _job(inputs: list[str], given: TunedJob) -> BuildSpec:
    """Make the job that is tuned: of a job file, or of its inputs."""
    if len(inputs) == 1 and inputs[0].endswith(".toml"):
        return given.spec(Path(inputs[0]))
    return given.spec(input=inputs, out=index_name(inputs[0]))


def index_name(source: str) -> str:
    """Return what to call the index of an input: by its file, or by the folder that a pattern looks into."""
    named = next((part for part in reversed(PurePath(source).parts) if not set(part) & set("*?[")), "")
    return (PurePath(named).stem or "tuned") + INDEX_SUFFIX


def _show(report: BuildReport[Any], kind: str) -> None:
    """Print the frontier, and what to take."""
    from indexmill.jobs.console.tables import stdout_console
    from indexmill.jobs.console.tuned.graphs import show_graphs
    from indexmill.jobs.console.tuned.tables import show_tables

    shows: dict[str, Callable[[Console, Any], None]] = {"graph": show_graphs, "lsh": show_tables}
    shows[kind](stdout_console(), report)
