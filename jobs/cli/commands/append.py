"""`indexmill append`: more vectors for an index, as its next generation."""

from __future__ import annotations

from typing import Annotated

import typer

from indexmill.jobs.cli.options import Column, Force, IndexDir, Json, Memory, NewOut, Workers, examples

NAME = "append"
EXAMPLES = examples(
    "indexmill append products.index new.parquet --id-column sku",
    "indexmill append products.index monday.npy tuesday.npy --out tuesday.index",
)


def command(
    index: IndexDir,
    more: Annotated[
        list[str],
        typer.Argument(metavar="MORE...", help="Vectors to add, in any input format; paths, globs or URLs."),
    ],
    column: Column = None,
    id_column: Annotated[
        str | None, typer.Option(help="Column of user ids, if the index has user ids.")
    ] = None,
    out: NewOut = None,
    memory: Memory = "8GiB",
    workers: Workers = 2,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Add vectors to an index, at a cost in distances proportional to what is added.

    The result is the index's next generation; searches that have it open go on undisturbed. Metadata columns are
    those of the index.
    """
    from indexmill.jobs.api.extend import open_files, show_result
    from indexmill.jobs.cli.run_options import run_options
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.pipeline.append.run import run_append

    options = run_options(out, memory, workers, force)
    with stderr_progress() as progress:
        manifest = run_append(
            index, lambda names: open_files(more, column, id_column, names), options, progress
        )
    show_result(out or index, manifest, json_)
