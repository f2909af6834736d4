"""What `indexmill export` and `indexmill.export` share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from indexmill.pipeline.export import ExportOptions

#: Names of files that are printed; all of them are in export.json.
_SHOWN = 10


def export_options(to: str, out: str | os.PathLike[str], ids: str, force: bool) -> ExportOptions:
    """Check how an export is to go.

    Raises
    ------
    ConfigError
        Naming the option and the nearest word it takes.
    """
    from indexmill.pipeline.allocator import hold_little

    hold_little()  # before anything imports numpy or Arrow
    from indexmill.formats.exports.targets import TARGETS
    from indexmill.jobs.options import one_of
    from indexmill.pipeline.export import ExportOptions

    return ExportOptions(one_of(to, tuple(TARGETS), "to"), out, one_of(ids, ("user", "slot"), "ids"), force)


def target_list() -> list[dict[str, Any]]:
    """Return what every target keeps and what its engine rebuilds."""
    from indexmill.formats.exports.targets import TARGETS

    return [target.to_dict() for target in TARGETS.values()]


def show_targets(targets: list[dict[str, Any]]) -> None:
    """Print the targets as a table."""
    from rich.table import Table

    from indexmill.jobs.tables import stdout_console

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("target", "kind", *targets[0]["keeps"], "the engine rebuilds", "opened by"):
        table.add_column(heading, overflow="fold")
    for target in targets:
        table.add_row(
            target["target"],
            ", ".join(target["kinds"]),
            *target["keeps"].values(),
            target["rebuilds"],
            target["engine"],
        )
    stdout_console().print(table)


def show_export(found: dict[str, Any]) -> None:
    """Print what was written, and how to open it."""
    from indexmill.jobs.tables import human_bytes

    size = human_bytes(sum(file["bytes"] for file in found["files"]))
    names = ", ".join(file["name"] for file in found["files"][:_SHOWN])
    if len(found["files"]) > _SHOWN:
        names += f" and {len(found['files']) - _SHOWN} more"
    print(f"{found['out']}: {found['n_vectors']:,} vectors, {size}: {names}")
    print(f"Open it in {found['engine']}:\n\n{found['open']}", end="")
