"""Options of an export, shared by `indexmill export` and `indexmill.export`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from indexmill.formats.location import local_path

if TYPE_CHECKING:
    from indexmill.pipeline.export.run import ExportOptions


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

    target, place = one_of(to, tuple(TARGETS), "to"), local_path(out, "out")
    return ExportOptions(target, place, one_of(ids, ("user", "slot"), "ids"), force)


def target_list() -> list[dict[str, Any]]:
    """Return what every target keeps and what its engine rebuilds."""
    from indexmill.formats.exports.targets import TARGETS

    return [target.to_dict() for target in TARGETS.values()]
