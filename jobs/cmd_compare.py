"""`indexmill compare`: several indexes over the same queries, at equal recall."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.jobs.options import (
    BeamWidth,
    Column,
    Engine,
    Entry,
    InFlight,
    Json,
    K,
    PolicyList,
    Queries,
    Threads,
    examples,
    one_of,
    split_choices,
    split_sizes,
)
from indexmill.reader.choices import DEFAULT_ENTRY

if TYPE_CHECKING:
    from rich.console import Console

NAME = "compare"
EXAMPLES = examples(
    "indexmill compare before after --queries query.u8bin --truth truth.gt --out report.html",
    "indexmill compare before after --sample-queries 1000 --base words.parquet --plot curves.png",
)


def command(
    indexes: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="The indexes; the first is the reference.")
    ],
    queries: Queries = None,
    truth: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="True neighbours of the queries (big-ann ground truth)."),
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="The indexes' input: to compute the truth, or to sample queries from."
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample-queries",
            min=1,
            metavar="N",
            help="Query with N rows of --base, each left out of its own results.",
        ),
    ] = None,
    column: Column = None,
    k: K = 10,
    sizes: Annotated[
        str | None,
        typer.Option("-L", "--search-list-size", metavar="L,L", help="Sweep. (default 10,15,20,30,...,240)"),
    ] = None,
    policy: PolicyList = "beam,pipeline",
    entry: Entry = DEFAULT_ENTRY,
    beam_width: BeamWidth = None,
    threads: Threads = 1,
    inflight: InFlight = None,
    engine: Engine = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Chooses the sampled queries.")] = 1,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML report; replaced if it exists.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plots as .png or .svg.")
    ] = None,
    json_: Json = False,
) -> None:
    """Sweep indexes over list sizes and compare page reads, latency and throughput at equal recall."""
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.choices import check_engine
    from indexmill.jobs.score import Setting
    from indexmill.jobs.truth import load_queries, sample_queries
    from indexmill.reader.choices import ENTRIES, POLICIES

    policies = split_choices(policy, POLICIES, "--policy")
    check_engine(engine)
    for path, suffixes, flag in ((out, (".html",), "--out"), (plot, (".png", ".svg"), "--plot")):
        _check_output(path, suffixes, flag)
    list_sizes = choose_sizes(sizes, k + (sample is not None))
    contenders = open_contenders(indexes, engine)
    first = contenders[0].index
    if sample is not None:
        if queries is not None or truth is not None:
            raise ConfigError(
                "--sample-queries: takes the place of --queries and --truth; give one or the other"
            )
        query_set = sample_queries(first, base or [], sample, k, column, seed, threads)
    else:
        query_set = load_queries(first, queries, truth, base or [], k, column, threads)
    setting = Setting(k, policies[0], one_of(entry, ENTRIES, "--entry"), threads, beam_width, inflight)
    result = run_comparison(contenders, query_set, policies, list_sizes, setting)
    if out is not None:
        from indexmill.jobs.report import write_report

        write_report(result, out)
    if plot is not None:
        from indexmill.jobs.plot import save_plot

        save_plot(result["sweep"], plot)
    if json_:
        print(json.dumps(result, indent=2))
        return
    from indexmill.jobs.tables import stdout_console

    console = stdout_console()
    print_comparison(console, result)
    for path in (out, plot):
        if path is not None:
            console.print(f"wrote {path}", markup=False, soft_wrap=True)


def choose_sizes(sizes: str | None, least: int) -> list[int]:
    """Return the ascending list sizes of a sweep; those of the default sweep below `least` are left out.

    Raises
    ------
    ConfigError
        If a size that was asked for is below `least`, or none is left.
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.compare import SWEEP_SIZES

    asked = [size for size in SWEEP_SIZES if size >= least] if sizes is None else split_sizes(sizes, "-L")
    chosen = sorted(set(asked))
    if not chosen or chosen[0] < least:
        raise ConfigError(f"-L: {least} results are needed a query; give list sizes of at least {least}")
    return chosen


def open_contenders(paths: Sequence[Path], engine: str = "auto") -> list[Any]:
    """Open all indexes and check that the same queries fit them.

    Raises
    ------
    InputError
        If they differ in number of vectors, dimensions or metric.
    """
    from indexmill.formats.errors import InputError
    from indexmill.jobs.compare import Contender, unique_names
    from indexmill.jobs.opening import load_manifest, open_index

    names = unique_names([str(path) for path in paths])
    contenders = [
        Contender(name, open_index(path, engine), load_manifest(path))
        for name, path in zip(names, paths, strict=True)
    ]
    first = contenders[0].index
    for other in contenders[1:]:
        ours = (len(first), first.dim, first.metric)
        theirs = (len(other.index), other.index.dim, other.index.metric)
        if ours != theirs:
            raise InputError(
                f"{other.index.path}: {theirs[0]:,} vectors of {theirs[1]} dimensions, {theirs[2]}, but"
                f" {first.path} has {ours[0]:,} of {ours[1]}, {ours[2]}; compare indexes of the same input"
            )
    return contenders


def run_comparison(
    contenders: Sequence[Any], queries: Any, policies: Sequence[str], sizes: Sequence[int], setting: Any
) -> dict[str, Any]:
    """Sweep all contenders, with progress on stderr; return what tables, plots and JSON are made of."""
    from indexmill.jobs.compare import compare_rows, layout_rows, sweep_all
    from indexmill.jobs.progress import stderr_progress
    from indexmill.pipeline.progress import stage_progress

    steps = len(contenders) * len(policies) * len(sizes)
    with stderr_progress() as progress, stage_progress(progress, "sweep", steps, "runs"):
        rows = sweep_all(contenders, queries, policies, sizes, setting, tick=lambda: progress.advance(1))
    return {
        "setting": {
            "k": setting.k,
            "queries": len(queries),
            "leave_one_out": queries.own is not None,
            "entry": ", ".join(dict.fromkeys(row["entry"] for row in rows)),
            "threads": setting.threads,
            "beam_width": rows[0]["beam_width"],
        },
        "at_recall": compare_rows(rows),
        "layout": layout_rows(contenders),
        "sweep": rows,
    }


def print_comparison(console: Console, result: dict[str, Any]) -> None:
    """Print a comparison's tables."""
    from indexmill.jobs.compare import cost_cells, layout_cells
    from indexmill.jobs.tables import add_row, plain_table

    k = result["setting"]["k"]
    headings, lines = cost_cells(result["at_recall"])
    table = plain_table(f"Cost at equal recall@{k}", headings)
    for line in lines:
        add_row(table, line)
    console.print(table)
    headings, lines = layout_cells(result["layout"])
    table = plain_table("Layout", headings)
    for line in lines:
        add_row(table, line)
    console.print(table)


def _check_output(path: Path | None, suffixes: tuple[str, ...], flag: str) -> None:
    from indexmill.formats.errors import ConfigError

    if path is None:
        return
    if path.suffix not in suffixes:
        raise ConfigError(f"{flag}: {path}: expected a name that ends in {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise ConfigError(f"{flag}: {path}: the folder {path.parent} does not exist; create it first")
