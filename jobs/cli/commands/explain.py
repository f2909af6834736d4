"""`indexmill explain`: what limits an index, whether a layout can help it, and which kind suits a task."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from indexmill.formats.errors import ConfigError
from indexmill.jobs.choices import search_memory_of, size_of
from indexmill.jobs.kinds.job import JobOptions
from indexmill.jobs.options.shared import IndexDir, Json, Memory, Workers, examples

if TYPE_CHECKING:
    import numpy as np

    from indexmill.formats.index.manifest import Manifest
    from indexmill.pipeline.cost.recommend import Recommendation

NAME = "explain"
EXAMPLES = examples(
    "indexmill explain products.index",
    "indexmill explain products.index --json",
    "indexmill explain products.index --rebuild --search-memory 64/vector",
    "indexmill explain products.index --at-once 100000 --recall 0.9 --search-memory 1GB",
)


class SearchMemoryOption(JobOptions):
    """The memory of searches, which is an option of a job, too."""

    NAMES = ("search_memory",)
    DEFAULTS: ClassVar = {"search_memory": "no limit; with --rebuild, what the index has"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `explain`."""

    index: IndexDir
    at_once: Annotated[
        int, typer.Option(min=1, help="Queries that are answered together; 1: each as it comes.")
    ] = 1
    recall: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the 10 nearest to find.")] = 0.95
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="Compare the codes, the nodes and R of a graph with those that a build would choose, by searches of "
            "small indexes of a sample: takes some seconds.",
        ),
    ] = False
    held: SearchMemoryOption
    disk: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Most disk space that an index may take; default: no limit."),
    ] = None
    build_time: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Most seconds that a build on two cores may take; default: no limit.",
        ),
    ] = None
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Scratch files, where a sample is measured; default: beside the index."
        ),
    ] = None
    memory: Memory = "1GiB"
    workers: Workers = 2
    json_: Json = False


def command(options: Options) -> None:
    """Say which kind of index suits a task; of a graph also what its pages hold, and what would save page reads.

    With one node a page no layout can help: then smaller nodes are measured on a sample of the index, and its searches
    are replayed in other formats. --rebuild adds what another build would save.
    """
    from indexmill.jobs.api.run_options import run_options

    how = run_options(None, options.memory, options.workers, False, options.work)  # before Arrow is imported
    from indexmill.formats.index.manifest import read_manifest
    from indexmill.jobs.kinds.registry import KINDS
    from indexmill.pipeline.cost.recommend import Task, recommend

    text = options.held.given["search_memory"]
    limit = None if text is None else search_memory_of(text, "search_memory")
    held = None if limit is None or limit.per_vector else limit.bytes
    taken = None if options.disk is None else size_of(options.disk, "--disk")
    manifest = read_manifest(options.index, KINDS)
    rebuild = KINDS[manifest.kind].rebuild if options.rebuild else None
    if options.rebuild and rebuild is None:
        raise ConfigError(
            f"--rebuild: compares formats of graphs, and this index is of kind {manifest.kind}; leave it out"
        )
    told, lines = KINDS[manifest.kind].explain(options.index, how)
    if rebuild is not None:
        told["rebuild"], compared = rebuild(options.index, how, text)
        lines = [*lines, *compared]
    task = Task(*_size(manifest), options.at_once, options.recall, held, taken, options.build_time)
    suits = recommend(task, {name: kind.advice(task) for name, kind in KINDS.items()})
    _print(options.index, told, lines, suits, options.json_)


def _size(manifest: Manifest) -> tuple[int, int, np.dtype[Any]]:
    """Return the number of vectors of an index, of their components, and the type of these."""
    import numpy as np

    shape = manifest.input
    return int(shape["n_vectors"]), int(shape["dim"]), np.dtype(str(shape["dtype"]))


def _print(index: Path, told: dict[str, Any], lines: list[str], suits: Recommendation, json_: bool) -> None:
    if json_:
        kind = {"kind": suits.kind, "words": list(suits.words)}
        print(json.dumps({"index": str(index), **told, "recommendation": kind}, indent=2))
        return
    print(f"{index}")
    for line in (*lines, *suits.words):
        print(f"  {line}")
