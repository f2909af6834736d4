"""Options and results of an export, shared by `indexmill export` and `indexmill.export`."""

from __future__ import annotations

import os
import shutil
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from indexmill.pipeline.export.run import ExportOptions

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


def export_options(to: str, out: str | os.PathLike[str], ids: str, force: bool) -> ExportOptions:
    """Check how an export is to go.

    Raises
    ------
    ConfigError
        Naming the option and the nearest word it takes.
    """
    from indexmill.pipeline.execution.allocator import hold_little

    hold_little()  # before anything imports numpy or Arrow
    from indexmill.formats.exports.targets import TARGETS
    from indexmill.jobs.choices import one_of
    from indexmill.pipeline.export.run import ExportOptions

    return ExportOptions(one_of(to, tuple(TARGETS), "to"), out, one_of(ids, ("user", "slot"), "ids"), force)


def target_list() -> list[dict[str, Any]]:
    """Return what every target keeps and what its engine rebuilds."""
    from indexmill.formats.exports.targets import TARGETS

    return [target.to_dict() for target in TARGETS.values()]


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
    from indexmill.formats.exports.targets import TARGETS

    there = TARGETS[target["target"]].parts
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
    from indexmill.jobs.console.tables import human_bytes

    size = human_bytes(sum(file["bytes"] for file in found["files"]))
    names = ", ".join(file["name"] for file in found["files"][:_SHOWN])
    if len(found["files"]) > _SHOWN:
        names += f" and {len(found['files']) - _SHOWN} more"
    print(f"{found['out']}: {found['n_vectors']:,} vectors, {size}: {names}")
    print(f"Open it in {found['engine']}:\n\n{found['open']}", end="")
