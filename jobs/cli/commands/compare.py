"""`indexmill compare`: several indexes over the same queries, at equal recall."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from indexmill.jobs.choices import one_of, split_choices, split_integers
from indexmill.jobs.options.declare import OUTPUT_PANEL
from indexmill.jobs.options.shared import (
    BeamWidth,
    Engine,
    Entry,
    InFlight,
    Json,
    PolicyList,
    Threads,
    examples,
)
from indexmill.jobs.score.asked import Asked
from indexmill.reader.choices import DEFAULT_ENTRY

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.jobs.compare.gate import Verdict
    from indexmill.jobs.score.queries import QuerySet
    from indexmill.reader.index import Index

NAME = "compare"
#: Runs of each measurement: three have a median.
REPEAT = 3
EXAMPLES = examples(
    "indexmill compare before after --queries query.u8bin --truth truth.gt --out report/",
    "indexmill compare before after --queries query.u8bin --truth truth.gt --skip 1000 --policy page --out report/",
    "indexmill compare before after --sample-queries 1000 --base words.parquet --plot curves.png",
    "indexmill compare released candidate --queries q.npy --base base.npy --gate tolerances.toml --markdown",
    "indexmill compare star agglomerative --queries q.npy --truth truth.gt --unit 64KiB --unit 1MiB",
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Queries that are rows of the input."""

    PANEL: ClassVar = Asked.PANEL
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample-queries",
            min=1,
            metavar="N",
            help="Query with N rows of --base, each left out of its own results.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Chooses the sampled queries.")] = 1


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Searches of the indexes."""

    PANEL: ClassVar = "Search"
    sizes: Annotated[
        str | None,
        typer.Option(
            "-L",
            "--search-list-size",
            metavar="L,L",
            help="Search list sizes to measure. (default 10,13,16,20,...,240)",
        ),
    ] = None
    policy: PolicyList = "beam,pipeline"
    entry: Entry = DEFAULT_ENTRY
    beam_width: BeamWidth = None
    threads: Threads = 1
    inflight: InFlight = None
    engine: Engine = "auto"
    unit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIZE",
            help="Count reads of this size, too, such as 64KiB for object storage; may be given several times.",
        ),
    ] = None
    repeat: Annotated[
        int, typer.Option(min=1, help="Runs of each measurement, the indexes taking turns; medians count.")
    ] = REPEAT


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `compare`."""

    PANEL: ClassVar = OUTPUT_PANEL
    indexes: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="The indexes; the first is the reference.")
    ]
    asked: Asked
    sampled: Sample
    sweep: Sweep
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a report into this folder; one that is there is replaced."),
    ] = None
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the plots as .png or .svg.")] = None
    gate: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="Exit with 7 if an index is worse than the first by more than these tolerances, or noise hides it.",
        ),
    ] = None
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables as Markdown, for a pull request.")
    ] = False
    json_: Json = False


def command(options: Options) -> None:
    """Compare page reads, latency and throughput of indexes at equal recall; write a report, hold a gate."""
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.compare.contenders import open_contenders
    from indexmill.jobs.compare.gate import check_gate, check_measured, judge, verdict_rows
    from indexmill.jobs.compare.run import run_comparison
    from indexmill.jobs.compare.tolerances import read_tolerances
    from indexmill.jobs.compare.units import split_units
    from indexmill.jobs.report.summary import markdown
    from indexmill.jobs.report.write import check_folder, write_report
    from indexmill.jobs.score.graph import Setting
    from indexmill.jobs.search.engines import check_engine
    from indexmill.reader.choices import ENTRIES, POLICIES

    if options.markdown and options.json_:
        raise ConfigError("--markdown: --json prints something else; leave one of them out")
    asked, sweep = options.asked, options.sweep
    policies = split_choices(sweep.policy, POLICIES, "--policy")
    engine = check_engine(sweep.engine)
    units = split_units(sweep.unit or [])
    if options.out is not None:
        check_folder(options.out)
    _check_plot(options.plot)
    tolerances = None if options.gate is None else read_tolerances(options.gate)
    if tolerances is not None and len(options.indexes) < 2:
        raise ConfigError("--gate: name two indexes or more; the others are held against the first")
    list_sizes = choose_sizes(sweep.sizes, asked.k + (options.sampled.sample is not None))
    if tolerances is not None:
        check_measured(tolerances, policies, list_sizes)
    contenders = open_contenders(options.indexes, engine)
    reference = contenders[0].index
    query_set = _queries(reference, asked, options.sampled, sweep.threads)
    entry = one_of(sweep.entry, ENTRIES, "--entry")
    setting = Setting(asked.k, policies[0], entry, sweep.threads, sweep.beam_width, sweep.inflight)
    found = run_comparison(contenders, query_set, policies, list_sizes, setting, sweep.repeat, units)
    result = found.result
    verdicts: list[Verdict] = []
    refused: ConfigError | None = None
    if tolerances is not None:
        try:
            verdicts = judge(tolerances, result["sweep"], result["noise"]["floor"])
        except ConfigError as error:  # raised once what was measured is written
            refused = error
        else:
            result["gate"] = verdict_rows(verdicts)
    written = [] if options.out is None else [write_report(found, options.out)]
    if options.plot is not None:
        from indexmill.jobs.score.plot import save_plot

        save_plot([row for row in result["sweep"] if not row["again"]], options.plot)
        written.append(options.plot)
    if options.markdown:
        print(markdown(result))
    else:
        print_result(result, written, options.json_)
    if refused is not None:
        raise refused
    check_gate(verdicts)


def _queries(reference: Index, asked: Asked, sampled: Sample, threads: int) -> QuerySet:
    """Read the queries, or sample them from the input."""
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.score.queries import sample_queries

    if sampled.sample is None:
        return asked.load(reference, threads)
    if asked.queries is not None or asked.truth is not None:
        raise ConfigError("--sample-queries: takes the place of --queries and --truth; give one or the other")
    found = sample_queries(
        reference, asked.base or [], sampled.sample, asked.k, asked.column, sampled.seed, threads
    )
    return found.part(asked.skip, asked.first)


def print_result(result: dict[str, Any], written: Sequence[Path], as_json: bool) -> None:
    """Print the result."""
    if as_json:
        from indexmill.jobs.report.markup import finite

        print(json.dumps(finite(result), indent=2, allow_nan=False))
        return
    from indexmill.jobs.console.tables import stdout_console

    console = stdout_console()
    print_comparison(console, result)
    for path in written:
        console.print(f"wrote {path}", markup=False, soft_wrap=True)


def choose_sizes(sizes: str | None, least: int) -> list[int]:
    """Return the ascending list sizes of a sweep; those of the default sweep below `least` are left out.

    Raises
    ------
    ConfigError
        If a size that was asked for is below `least`, or none is left.
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.compare.measure import SWEEP_SIZES

    asked = [size for size in SWEEP_SIZES if size >= least] if sizes is None else split_integers(sizes, "-L")
    chosen = sorted(set(asked))
    if not chosen or chosen[0] < least:
        raise ConfigError(f"-L: {least} results are needed a query; give list sizes of at least {least}")
    return chosen


def print_comparison(console: Console, result: dict[str, Any]) -> None:
    """Print a comparison's tables, its noise and what a gate said."""
    from indexmill.jobs.compare.costs import cost_cells, layout_cells
    from indexmill.jobs.compare.noise import noise_sentence, noise_warning
    from indexmill.jobs.compare.units import unit_cells
    from indexmill.jobs.console.tables import add_row, plain_table

    k, at_recall, units = result["setting"]["k"], result["at_recall"], result.get("units", [])
    for title, (headings, lines) in (
        (f"Cost at equal recall@{k}", cost_cells(at_recall)),
        *([(f"Units read at equal recall@{k}", unit_cells(at_recall, units))] if units else []),
        ("Layout", layout_cells(result["layout"])),
    ):
        table = plain_table(title, headings)
        for line in lines:
            add_row(table, line)
        console.print(table)
    floor = result["noise"]["floor"]
    console.print(noise_sentence(floor), soft_wrap=True)
    warning = noise_warning(floor)
    if warning is not None:
        console.print(warning, soft_wrap=True)
    for one in result.get("gate", []):
        console.print(f"gate {one['outcome']}: {one['sentence']}", markup=False, soft_wrap=True)


def _check_plot(path: Path | None) -> None:
    from indexmill.formats.errors import ConfigError
    from indexmill.formats.extras import require

    if path is None:
        return
    if path.suffix not in (".png", ".svg"):
        raise ConfigError(f"--plot: {path}: expected a name that ends in .png or .svg")
    if not path.parent.is_dir():
        raise ConfigError(f"--plot: {path}: the folder {path.parent} does not exist; create it first")
    require("matplotlib", "--plot")
