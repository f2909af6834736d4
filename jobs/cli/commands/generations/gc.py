"""`indexmill gc`: removes generations of an index that nobody needs any more."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.options.shared import IndexDir, Json, examples

NAME = "gc"
EXAMPLES = examples("indexmill gc products.index", "indexmill gc products.index --keep-generations 2 --json")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `gc`."""

    index: IndexDir
    keep_generations: Annotated[
        int, typer.Option(min=1, help="Newest generations to keep, the present one among them.")
    ] = 1
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Clean also here: the --work of runs that were killed."),
    ] = None
    json_: Json = False


def command(options: Options) -> None:
    """Remove earlier generations of an index, and what killed runs left in its directory and beside it.

    Searches that have one open go on; `rollback` cannot go back to them any more. Where a run was killed before it
    published an index or an export, name the --out that it had.
    """
    from indexmill.jobs.console.tables import human_bytes
    from indexmill.jobs.kinds.opening import check_is_index
    from indexmill.pipeline.generations.gc import is_export, run_gc

    if options.index.exists() and not is_export(options.index):
        check_is_index(options.index)
    report = {"index": str(options.index), **run_gc(options.index, options.keep_generations, options.work)}
    if options.json_:
        print(json.dumps(report, indent=2))
        return
    nothing = "none, an export has no generations" if is_export(options.index) else "none, there is no index"
    kept = ", ".join(map(str, report["generations"])) or nothing
    removed = f"{len(report['removed'])} files and directories of {human_bytes(report['bytes'])} removed"
    print(f"{options.index}: {removed}; generations kept: {kept}")
