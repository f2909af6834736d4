"""`indexmill compact`: an index without its deleted vectors, as its next generation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.options.shared import (
    Force,
    IndexDir,
    Json,
    KeepGenerations,
    Memory,
    NewOut,
    Workers,
    examples,
)

NAME = "compact"
EXAMPLES = examples(
    "indexmill compact products.index",
    "indexmill compact products.index --out small.index --memory 2GiB --workers 8",
    "indexmill compact products.index --json",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `compact`."""

    index: IndexDir
    out: NewOut = None
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Scratch files, about four times the index; default: beside the output."
        ),
    ] = None
    memory: Memory = "1GiB"
    workers: Workers = 2
    force: Force = False
    keep_generations: KeepGenerations = None
    json_: Json = False


def command(options: Options) -> None:
    """Remove deleted vectors of an index for good. The index may be larger than memory.

    In graphs neighbour lists that name deleted vectors are repaired, pages filled and laid out again by the order of
    the index, and the certificate measured. Lists and hash tables lose the entries of deleted vectors, and added tables
    become part of the tables. An interrupted compaction resumes. The result is the index's next generation; searches
    that have the index open are not disturbed.
    The generation before stays on the disk for `rollback`, until `gc` or a later change removes it;
    --keep-generations says how many stay.
    """
    from indexmill.jobs.api.run_options import run_options
    from indexmill.jobs.cli.summary import compaction_in_words, print_summary
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.console.tables import stdout_console
    from indexmill.pipeline.compact.run import run_compact

    how = run_options(
        options.out, options.memory, options.workers, options.force, options.work, options.keep_generations
    )
    with stderr_progress() as progress:
        result = run_compact(options.index, how, progress)
    if options.json_:
        print(json.dumps({**result.told(), "manifest": result.manifest}, indent=2))
        return
    console = stdout_console()
    if result.manifest is None:
        console.print(
            f"{options.index}: no vector was deleted, and a compaction would not change it: nothing was written",
            markup=False,
            soft_wrap=True,
        )
        return
    print_summary(console, options.out or options.index, result.manifest)
    console.print(compaction_in_words(result.told()), markup=False, soft_wrap=True)
