"""`indexmill explain`: what binds an index, whether a layout can help it, and which kind suits a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.formats.errors import ConfigError
from indexmill.jobs.cli.options import IndexDir, Json, Memory, Workers, examples

if TYPE_CHECKING:
    from indexmill.formats.index.manifest import Manifest
    from indexmill.pipeline.cost.recommend import Recommendation

NAME = "explain"
EXAMPLES = examples(
    "indexmill explain products.index",
    "indexmill explain products.index --json",
    "indexmill explain products.index --at-once 100000 --recall 0.9 --search-memory 1GB",
)


def command(
    index: IndexDir,
    at_once: Annotated[
        int, typer.Option(min=1, help="Queries that are there to be answered together; 1: each as it comes.")
    ] = 1,
    recall: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the 10 nearest to find.")] = 0.95,
    search_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What searches may hold; default: no limit.")
    ] = None,
    disk: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What an index may take; default: no limit.")
    ] = None,
    build_time: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="SECONDS", help="What a build on two cores may take; default: no limit."
        ),
    ] = None,
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
    """Say which kind of index suits a task; of a graph, how its pages lie, and what would make searches read less.

    With one node a page no layout can help: then smaller nodes are measured on a sample of the index, and its searches
    are replayed in other formats.
    """
    from indexmill.formats.index.manifest import REQUIRED_FILES, read_manifest
    from indexmill.jobs.cli.run_options import run_options
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.pipeline.cost.recommend import Task, recommend
    from indexmill.pipeline.relayout.explain import run_explain

    held, taken = _bytes(search_memory, "--search-memory"), _bytes(disk, "--disk")
    manifest = read_manifest(index, tuple(REQUIRED_FILES))
    told: dict[str, Any] = {}
    lines: list[str] = []
    if manifest.kind == "graph":
        with stderr_progress() as progress:
            found = run_explain(index, run_options(None, memory, workers, False, work), progress)
        told, lines = found.as_dict(), found.lines
    suits = recommend(Task(*_size(manifest), at_once, recall, held, taken, build_time))
    _print(index, told, lines, suits, json_)


def _bytes(size: str | None, flag: str) -> int | None:
    from indexmill.pipeline.spec import parse_size

    try:
        return None if size is None else int(parse_size(size))
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from None


def _size(manifest: Manifest) -> tuple[int, int]:
    """Return vectors of an index, and bytes of each."""
    import numpy as np

    shape = manifest.input
    return int(shape["n_vectors"]), int(shape["dim"]) * np.dtype(str(shape["dtype"])).itemsize


def _print(index: Path, told: dict[str, Any], lines: list[str], suits: Recommendation, json_: bool) -> None:
    if json_:
        kind = {"kind": suits.kind, "words": list(suits.words)}
        print(json.dumps({"index": str(index), **told, "recommendation": kind}, indent=2))
        return
    print(f"{index}")
    for line in (*lines, *suits.words):
        print(f"  {line}")
