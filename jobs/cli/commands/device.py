"""`indexmill device`: how fast a device answers random reads, as a profile."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from indexmill.jobs.choices import size_of
from indexmill.jobs.options.shared import Force, Json, examples

if TYPE_CHECKING:
    from rich.table import Table

    from indexmill.jobs.devices.measure import Outcome

NAME = "device"
EXAMPLES = examples(
    "indexmill device index",
    "indexmill device /mnt/ssd --size 4GiB --out ssd.json",
    "indexmill score index --queries q.npy --truth truth.gt --engine simulated:ssd.json",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `device`."""

    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A file to read, an index, or any directory: then a temporary file is written there.",
        ),
    ]
    size: Annotated[str, typer.Option(metavar="SIZE", help="Size of the temporary file.")] = "1GiB"
    seconds: Annotated[float, typer.Option(min=0.01, help="Length of each of the 18 measurements.")] = 1.0
    seed: Annotated[int, typer.Option(min=0, help="Chooses the blocks that are read.")] = 1
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the profile here. Default: your cache folder, where `score` finds it for every index on"
            " the device.",
        ),
    ] = None
    force: Force = False
    json_: Json = False


def command(options: Options) -> None:
    """Measure random reads at queue depths 1 to 128 and their processor time, and keep a profile of the device."""
    from indexmill.formats.device import write_profile
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.devices import measure
    from indexmill.jobs.devices.profiles import kept_profile_path
    from indexmill.jobs.search.results import check_writable

    file_bytes = size_of(options.size, "--size")
    if options.out is not None:
        check_writable(options.out, options.force)
    with (
        stderr_progress() as progress,
        measure.open_target(options.path, file_bytes, options.seed, progress) as target,
    ):
        where = kept_profile_path(target.shown) if options.out is None else options.out
        where.parent.mkdir(parents=True, exist_ok=True)
        outcome = measure.measure_device(
            target, measure.native_measurer(), progress, options.seconds, options.seed
        )
    write_profile(where, outcome.profile)
    if options.json_:
        value = {"out": str(where), "notes": outcome.notes, **outcome.profile.model_dump()}
        print(json.dumps(value, indent=2))
        return
    from indexmill.jobs.console.tables import stdout_console

    console = stdout_console()
    console.print(device_table(outcome))
    for note in outcome.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    console.print(f"wrote {where}", markup=False, soft_wrap=True)


def device_table(outcome: Outcome) -> Table:
    """Make a table of all measurements of a profile."""
    from indexmill.jobs.console.tables import add_row, plain_table
    from indexmill.jobs.devices.measure import SECTOR_BYTES

    measured = outcome.profile.measured
    assert measured is not None
    headings = ["bytes", "depth", "reads/s", "MB/s", "CPU us", "mean us", "P50", "P90", "P99", "P99.9", "max"]
    way = measured.engine if measured.direct else f"{measured.engine}, through the page cache"
    table = plain_table(f"{outcome.profile.name}, {way}, {measured.seconds:g} s each", headings)
    for one in measured.reads:
        latency = one.latency_us
        times = (latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.max)
        cpu = "-" if one.cpu_us is None else f"{one.cpu_us:.1f}"
        rates = [f"{one.bytes:,}", str(one.depth), f"{one.iops:,.0f}", f"{one.mb_per_s:,.1f}", cpu]
        add_row(table, rates + [f"{time:,.0f}" for time in times])
    if outcome.refused is not None:
        depth = sum(one.bytes == SECTOR_BYTES for one in measured.reads)
        add_row(
            table,
            [str(SECTOR_BYTES), "all" if depth == 0 else "rest", "refused", *["-"] * (len(headings) - 3)],
        )
    return table
