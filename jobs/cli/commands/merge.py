"""`indexmill merge`: one index out of two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.cli.options import Force, Json, Memory, NewOut, Workers, examples

NAME = "merge"
EXAMPLES = examples(
    "indexmill merge products.index new-products.index",
    "indexmill merge a.index b.index --out both.index --workers 8",
)


def command(
    first: Annotated[Path, typer.Argument(metavar="A", help="An index; its vector ids stay.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another index; its vector ids follow.")],
    out: NewOut = None,
    memory: Memory = "8GiB",
    workers: Workers = 2,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Join two indexes, at a cost in distances proportional to the smaller one.

    The result takes A's place as its next generation, with the parameters of the larger of the two; B stays.
    """
    from indexmill.jobs.api.extend import show_result
    from indexmill.jobs.cli.run_options import run_options
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.pipeline.append.run import run_merge

    options = run_options(out, memory, workers, force)
    with stderr_progress() as progress:
        manifest = run_merge(first, second, options, progress)
    show_result(out or first, manifest, json_)
