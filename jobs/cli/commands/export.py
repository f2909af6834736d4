"""`indexmill export`: an index in the files of the engine that will serve it."""

from __future__ import annotations

import json
import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from indexmill.jobs.options.declare import flags_given
from indexmill.jobs.options.shared import Force, Json, RayAddress, examples

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
    "indexmill export model.ivf --to lance --dataset products.lance --column vector --workers 4",
    "indexmill export model.ivf --to lance --dataset s3://a/products.lance --executor ray --work s3://a/work",
)
#: Names of files that are printed; all of them are in export.json.
_SHOWN = 10
#: Widest line of the list of targets.
_WIDTH = 110
#: Parts of an index that targets keep or not, and what they are.
_PARTS = {
    "graph": "neighbour lists",
    "codes": "PQ codes and their codebook",
    "clusters": "centroids and the vectors of each, or buckets of hashes",
    "order": "place of a vector in the file",
    "pages": "which vectors share a page of 4096 bytes",
    "entries": "vertices that searches start at",
    "ids": "user ids, by which the engine names vectors; a number of bits means whole numbers from 0 up of that width",
    "metadata": "the columns that came with the vectors",
}
_BESIDE = (
    "in ids.parquet, which every export has: a row for each vector, in the order of the engine's numbers"
)


@dataclass(frozen=True, kw_only=True)
class InDataset:
    """The options of an index of an existing dataset."""

    PANEL: ClassVar = "Index of an existing Lance dataset"

    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL",
            help="With --to lance: index this dataset where it lies, by the centroids and the codebook of the index. "
            "A killed command resumes with the remaining fragments when it runs again.",
        ),
    ] = None
    column: Annotated[
        str | None, typer.Option(help="Vector column of the dataset; default: the only one that fits.")
    ] = None
    executor: Annotated[
        str,
        typer.Option(
            metavar="local|ray", help="Where fragments are indexed; ray: on the nodes of a cluster."
        ),
    ] = "local"
    ray_address: RayAddress = None


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The options of a compaction, and of a run on a dataset."""

    PANEL: ClassVar = "Resources"

    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory budget, beside the page cache, of the compaction of an index with deletions, such as 500MB. "
            "(default 1GiB)",
        ),
    ] = None
    workers: Annotated[
        int,
        typer.Option(
            help="Threads of the compaction; with --dataset, fragments indexed at a time on each node. They do not "
            "change the result."
        ),
    ] = 2
    work: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL",
            help="Scratch files of the compaction, about four times the index; default: beside the output. With "
            "--dataset, notes on finished fragments, which all nodes must see; default: beside the dataset.",
        ),
    ] = None


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
    in_dataset: InDataset
    resources: Resources
    force: Force = False
    json_: Json = False


def command(options: Options) -> None:
    """Write an index in the files of another engine, and print how to open them there.

    Graph, codes, page order, ids and metadata are kept wherever the engine can hold them. Deleted vectors are left
    out: for targets that hold graphs, lists or tables the index is compacted in a scratch directory first. With
    --dataset an existing Lance dataset gets an index instead.

    What a target cannot hold is refused before anything is written; a failed run leaves an earlier export as it was.
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.api.export import export_options, target_list
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
    if options.in_dataset.dataset is not None:
        _index_dataset(options.index, options.to, options)
        return
    for flag in flags_given(options.in_dataset):
        raise ConfigError(f"{flag}: goes with --dataset only; name the dataset, or leave {flag} out")
    if options.out is None:
        raise ConfigError("--out: missing; name the directory to write")
    how = export_options(options.to, options.out, options.ids, options.force, **vars(options.resources))
    from indexmill.pipeline.export.run import run_export

    check_is_index(options.index)
    with stderr_progress() as progress:
        found = run_export(options.index, how, progress)
    if options.json_:
        print(json.dumps(found, indent=2))
    else:
        show_export(found)


def _index_dataset(index: Path, to: str, options: Options) -> None:
    """Make an index in a dataset, and print what was made."""
    from indexmill.jobs.api.export import dataset_options
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.kinds.opening import check_is_index

    given = {**vars(options.in_dataset), **vars(options.resources)}
    how = dataset_options(to, options.out, options.ids, force=options.force, **given)
    from indexmill.pipeline.export.lance.run import run_dataset_index

    check_is_index(index)
    with stderr_progress() as progress:
        found = run_dataset_index(index, how, progress)
    if options.json_:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{found['dataset']}: version {found['version']:,} has index {found['index']}: {found['type']}, "
        f"{found['rows']:,} vectors of {found['fragments']:,} fragments in {found['lists']:,} lists "
        f"({found['reused']:,} of {found['segments']:,} segments were there)"
    )
    print(f"Search it in Lance:\n\n{found['open']}", end="")


def show_targets(targets: list[dict[str, Any]]) -> None:
    """Print the targets, a few lines each, by the kinds of index that they hold; then what the words mean."""
    for kinds in dict.fromkeys(tuple(target["kinds"]) for target in targets):
        print(f"Indexes of kind {' and '.join(kinds)}:\n")
        for target in targets:
            if tuple(target["kinds"]) == kinds:
                _show_target(target)
    print("What the words mean:\n")
    for part, what in _PARTS.items():
        _print_wrapped(f"{part}: {what}", "  ")
    _print_wrapped(f"beside it: {_BESIDE}", "  ")


def _show_target(target: dict[str, Any]) -> None:
    """Print a target: what becomes of the parts that its kinds of index have."""
    from indexmill.formats.exports import targets

    there = targets.TARGETS[target["target"]].parts
    keeps = {part: word for part, word in target["keeps"].items() if part in there}
    kept = [part if word == "yes" else f"{part} ({word})" for part, word in keeps.items() if word != "no"]
    _print_wrapped(f"{target['target']}: {target['engine']}", "  ")
    for heading, text in (
        ("keeps", ", ".join(kept)),
        ("leaves out", ", ".join(part for part, word in keeps.items() if word == "no") or "nothing"),
        ("the engine rebuilds", target["rebuilds"]),
    ):
        _print_wrapped(f"{heading}: {text}", "      ")
    print()


def _print_wrapped(text: str, indent: str) -> None:
    width = min(shutil.get_terminal_size((_WIDTH, 0)).columns, _WIDTH)
    print(textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent + "    "))


def show_export(found: dict[str, Any]) -> None:
    """Print what was written, and how to open it."""
    from indexmill.formats.exports.targets import TARGETS
    from indexmill.jobs.console.tables import human_bytes

    size = human_bytes(sum(file["bytes"] for file in found["files"]))
    names = ", ".join(file["name"] for file in found["files"][:_SHOWN])
    if len(found["files"]) > _SHOWN:
        names += f" and {len(found['files']) - _SHOWN} more"
    print(f"{found['out']}: {found['n_vectors']:,} vectors, {size}: {names}")
    if "removed" in found:
        close_up = "are positions among the others, as after a compaction"
        ids = "stay" if TARGETS[found["target"]].by_row else close_up
        print(f"{found['removed']:,} deleted vectors are left out; vector ids {ids}")
    print(f"Open it in {found['engine']}:\n\n{found['open']}", end="")
