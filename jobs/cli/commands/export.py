"""`indexmill export`: an index in the files of the engine that will serve it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.options.shared import Force, Json, examples

NAME = "export"
#: Names of targets for --help, which does not wait for the modules behind them; a test holds them to these.
TARGETS = (
    *("diskann", "faiss", "faiss-nsg", "faiss-ivf", "faiss-ivf-disk", "faiss-lsh", "lance", "lucene"),
    *("lucene-build", "jvector", "usearch", "svs", "parquet", "pgvector", "bulk"),
)
EXAMPLES = examples(
    "indexmill export --list",
    "indexmill export index --to diskann --out ann",
    "indexmill export index --to faiss --ids slot --out index.faiss --force --json",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `export`."""

    index: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The index: a directory with a manifest.json.")
    ] = None
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET", help=f"Engine to write for: {', '.join(TARGETS)}; --list says what each keeps."
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory to write: the engine's files, ids.parquet with the id of every vector, and "
            "export.json.",
        ),
    ] = None
    ids: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Names that the engine answers with, where it keeps names: user (user ids, or places in the "
            "input if there are none), or slot (places in the index, which ids.parquet translates).",
        ),
    ] = "user"
    list_: Annotated[
        bool,
        typer.Option(
            "--list", help="Show all targets, what each keeps and what its engine rebuilds; needs no index."
        ),
    ] = False
    force: Force = False
    json_: Json = False


def command(options: Options) -> None:
    """Write an index in the files of another engine, and print how to open them there.

    Graph, codes, page order, ids and metadata are kept wherever the engine can hold them.

    What a target cannot hold is refused before anything is written; a run that fails leaves what was there.
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.api.export import export_options, show_export, show_targets, target_list
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.kinds.opening import check_is_index

    if options.list_:
        targets = target_list()
        print(json.dumps(targets, indent=2)) if options.json_ else show_targets(targets)
        return
    if options.index is None:
        raise ConfigError("DIR: missing; name the index to export")
    if options.to is None:
        raise ConfigError("--to: missing; name a target; --list shows them")
    if options.out is None:
        raise ConfigError("--out: missing; name the directory to write")
    how = export_options(options.to, options.out, options.ids, options.force)
    from indexmill.pipeline.export.run import run_export

    check_is_index(options.index)
    with stderr_progress() as progress:
        found = run_export(options.index, how, progress)
    if options.json_:
        print(json.dumps(found, indent=2))
    else:
        show_export(found)
