"""Builds and steps that memory or the disk has no room for: the reason is a result, and nothing is filled."""

from __future__ import annotations

import re
from pathlib import Path

from indexmill.formats.errors import BudgetError
from indexmill.jobs.bench.common.process import Failed

#: How a command says that the disk has too little room (`pipeline.mill.disk_space.check_free`).
_DISK = re.compile(r"needs ([\d,]+) bytes there, ([\d,]+) are free")
_ERROR = "error: "


def reason_of(error: Failed, folder: Path) -> str:
    """Return why a command did not fit its budget; raise `error` again if it failed for another reason.

    Parameters
    ----------
    folder : Path
        Left out of the reason, which is for the record.
    """
    if error.code != BudgetError.exit_code:
        raise error
    if found := _DISK.search(error.said):
        need, free = (int(number.replace(",", "")) / 1e9 for number in found.groups())
        return f"needs {need:.1f} GB of disk, {free:.1f} free"
    lines = [line for line in error.said.splitlines() if line.startswith(_ERROR)]
    said = lines[-1].removeprefix(_ERROR) if lines else error.said
    return said.replace(f"{folder}/", "").partition(";")[0]
