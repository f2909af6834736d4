"""`indexmill bench NAME`: measurements that need only indexmill and some vectors."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.jobs.choices import one_of, split_sizes
from indexmill.jobs.options.declare import Commands
from indexmill.jobs.options.shared import Column, Force, Json, examples

if TYPE_CHECKING:
    from rich.table import Table

NAME = "bench"
EXAMPLES = examples(
    "indexmill bench assign base.fbin",
    "indexmill bench assign base.fbin --in-buffer 16MiB,64MiB,128MiB --leaders 25000 --rounds 3",
    "indexmill bench assign 'part-*.parquet' --scratch . --scratch /mnt/second --out assign.json",
    "indexmill bench assign base.fbin --index tree --depth 3 --leaf 128",
)

HELP = "Measure a part of indexmill on this machine, with your vectors."


@dataclass(frozen=True, kw_only=True)
class Assign:
    """The options of `bench assign`."""

    inputs: Annotated[list[str], typer.Argument(metavar="INPUT", help="Vectors, in any input format.")]
    leaders: Annotated[
        int, typer.Option(metavar="N", help="Leaders drawn from the vectors at random; each owns a cluster.")
    ] = 10_000
    in_buffer: Annotated[
        str, typer.Option(metavar="SIZE,...", help="Vectors read, assigned and written at a time, in bytes.")
    ] = "16MiB,64MiB,128MiB"
    scratch: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Where parts are written; each DIR is measured. The merged file is always written to the first, so a"
            " second DIR on another device is the two-drive setup. (default: the current directory)",
        ),
    ] = None
    leaf: Annotated[
        int | None,
        typer.Option(
            metavar="KIB", min=1, help="Vectors of a leader, in KiB, as eCP states the number of leaders."
        ),
    ] = None
    index: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How the nearest leader is found: groups of leaders, graph or tree over them, or exact: all of them.",
        ),
    ] = "groups"
    depth: Annotated[int, typer.Option(min=1, help="Levels of the tree.")] = 3
    beam: Annotated[int, typer.Option(min=1, help="Branches of the tree looked into at each level.")] = 1
    rounds: Annotated[int, typer.Option(min=1, help="Number of measurements of each setting, in turns.")] = 1
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads that compute distances. (default: one a core)")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Draws the leaders.")] = 1
    column: Column = None
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the record here: figures, machine, versions.")
    ] = None
    force: Force = False
    json_: Json = False


def assign(options: Assign) -> None:
    """Compare two ways to group vectors by their nearest leader on disk: chunk files and append files.

    The policy `temp` appends to one file a leader, `chunk` writes sorted chunk files and merges them. Both end in the
    same clusters. Total time is assignment and merge; a phase ends when its files are on the disk, and the page cache
    holds neither the input nor the parts when they are read. (eCP study, Tables 2 and 3.)
    """
    from indexmill.builders.leaders.base import n_leaders
    from indexmill.formats.pagefile.atomic import write_json_atomic
    from indexmill.formats.sources.source import open_source
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.grouping.setting import INDEXES, Setting, make_record
    from indexmill.jobs.search.results import check_writable

    sizes = split_sizes(options.in_buffer, "--in-buffer")
    if options.out is not None:
        check_writable(options.out, options.force)
    threads = options.workers or len(os.sched_getaffinity(0))
    paths = options.scratch or [Path(".")]
    leaders = options.leaders
    if options.leaf is not None:
        source = open_source(options.inputs, column=options.column)
        leaders = n_leaders(source.n_vectors, source.dim * source.dtype.itemsize, options.leaf)
    one_of(options.index, INDEXES, "--index")
    found_by = options.index, options.depth, options.beam
    setting = Setting(leaders, sizes, paths, threads, options.rounds, options.seed, *found_by)
    with stderr_progress() as progress:
        record = make_record(lambda: open_source(options.inputs, column=options.column), setting, progress)
    if options.out is not None:
        write_json_atomic(options.out, record)
    if options.json_:
        print(json.dumps(record, indent=2))
        return
    from indexmill.jobs.console.tables import stdout_console

    console = stdout_console()
    for place, path in enumerate(paths):
        console.print(assign_table(record, place, str(path)))
    if options.out is not None:
        console.print(f"wrote {options.out}", markup=False, soft_wrap=True)


def assign_table(record: Mapping[str, Any], place: int, path: str) -> Table:
    """Make a table of the runs with parts on one scratch path; medians where there are rounds."""
    from indexmill.jobs.console.tables import add_row, human_bytes, plain_table
    from indexmill.jobs.grouping.setting import median_runs

    data, used = record["data"], record["parameters"]
    title = (
        f"{data['name']}, {data['n_vectors']:,} x {data['dim']} {data['dtype']}, {used['leaders']:,} leaders"
        f" ({used['index']}, agreement {used['agreement']:.1%}), parts on {path} ({record['scratch'][place]})"
    )
    headings = [
        "in-buffer", "policy", "total s", "distances s", "assign s", "merge s", "outside", "file ops\nassign",
        "file ops\nmerge", "MB written", "MB read",
    ]  # fmt: skip
    table = plain_table(title, headings)
    for run in median_runs(record["runs"], place):
        add_row(table, [human_bytes(run["in_buffer_bytes"]), run["policy"], *_figures(run)])
    return table


def _figures(run: Mapping[str, Any]) -> Sequence[str]:
    phases = run["assigning"], run["merging"]
    return [
        *(f"{run[name]:,.2f}" for name in ("total_s", "distance_s", "assign_s", "merge_s")),
        f"{1 - run['distance_s'] / run['total_s']:.0%}",
        *(f"{phase['operations']:,}" for phase in phases),
        *(f"{sum(phase[name] for phase in phases) / 1e6:,.0f}" for name in ("bytes_written", "bytes_read")),
    ]


COMMANDS: Commands = (("assign", assign, EXAMPLES),)
