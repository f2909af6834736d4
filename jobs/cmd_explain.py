"""`indexmill explain`: what binds an index, and whether a layout can help it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.options import IndexDir, Json, Memory, Workers, examples

NAME = "explain"
EXAMPLES = examples("indexmill explain products.index", "indexmill explain products.index --json")


def command(
    index: IndexDir,
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Scratch files, where a sample is measured; default: beside the index."
        ),
    ] = None,
    memory: Memory = "1GiB",
    workers: Workers = 2,
    json_: Json = False,
) -> None:
    """Say in words how nodes, pages and neighbours of an index lie, and what would make its searches read less.

    With one node a page no layout can help: then smaller nodes are measured on a sample of the index, and its searches
    are replayed in other formats.
    """
    from indexmill.jobs.progress import stderr_progress
    from indexmill.jobs.run_options import run_options
    from indexmill.pipeline.relayout.explain import run_explain

    with stderr_progress() as progress:
        found = run_explain(index, run_options(None, memory, workers, False, work), progress)
    if json_:
        print(json.dumps({"index": str(index), **found.as_dict()}, indent=2))
        return
    print(f"{index}")
    for line in found.lines:
        print(f"  {line}")
