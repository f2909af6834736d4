"""Part *qps*: queries a second at equal recall, DiskANN, indexmill and the bare disk in turns."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.parameters import ORDER
from indexmill.jobs.bench.programs import ours, rates
from indexmill.jobs.bench.programs.ours import Setting
from indexmill.jobs.bench.programs.workspace import Workspace


def measure(space: Workspace) -> dict[str, Any]:
    """Choose a setting on the first half of the queries, then measure five rounds on the second, in turns."""
    return {"order": ORDER, **rates.beside_diskann(space, ours.ensure(space, ORDER))}


def chosen_setting(space: Workspace) -> Setting:
    """Return the setting that this part chose earlier; the reader's defaults if it has not run."""
    earlier = space.earlier("qps")
    return Setting() if earlier is None else Setting(**earlier["setting"])
