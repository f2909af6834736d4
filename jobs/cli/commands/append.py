"""`indexmill append`: more vectors for an index, as its next generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from indexmill.jobs.options.shared import (
    Column,
    Force,
    IndexDir,
    Json,
    KeepGenerations,
    Memory,
    NewOut,
    Work,
    Workers,
    examples,
)

NAME = "append"
EXAMPLES = examples(
    "indexmill append products.index new.parquet --id-column sku",
    "indexmill append products.index changed.parquet --id-column sku --replace",
    "indexmill append products.index monday.npy tuesday.npy --out tuesday.index",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `append`."""

    index: IndexDir
    more: Annotated[
        list[str],
        typer.Argument(metavar="MORE...", help="Vectors to add, in any input format; paths, globs or URLs."),
    ]
    column: Column = None
    id_column: Annotated[str | None, typer.Option(help="Column of user ids, if the index has user ids.")] = (
        None
    )
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete vectors with the same user ids, in the same generation.")
    ] = False
    out: NewOut = None
    work: Work = None
    memory: Memory = "8GiB"
    workers: Workers = 2
    force: Force = False
    keep_generations: KeepGenerations = None
    json_: Json = False


def command(options: Options) -> None:
    """Add vectors to an index of any kind, without building it again.

    The result is the index's next generation; searches that have the index open are not disturbed. Metadata columns are
    those of the index.
    """
    from indexmill.jobs.api.append import open_files
    from indexmill.jobs.api.run_options import run_options
    from indexmill.jobs.cli.summary import show_result
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.pipeline.append.run import run_append

    how = run_options(
        options.out, options.memory, options.workers, options.force, options.work, options.keep_generations
    )
    with stderr_progress() as progress:
        manifest = run_append(
            options.index,
            lambda names: open_files(options.more, options.column, options.id_column, names),
            how,
            progress,
            options.replace,
        )
    show_result(options.out or options.index, manifest, options.json_)
