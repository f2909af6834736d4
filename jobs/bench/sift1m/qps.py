"""Part *qps*: queries a second at equal recall, DiskANN, indexmill and the bare disk in turns."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.curves import RECALL, sizes_at
from indexmill.jobs.bench.common.dataset import K
from indexmill.jobs.bench.common.parameters import ORDER
from indexmill.jobs.bench.programs import native, ours, rates
from indexmill.jobs.bench.programs.ours import Setting
from indexmill.jobs.bench.programs.workspace import Workspace

#: L of the C programs if this part has not run: the reader's default.
_SIZE = 64


def measure(space: Workspace) -> dict[str, Any]:
    """Choose a setting on the first half of the queries, then measure five rounds on the second, in turns."""
    return {"order": ORDER, **rates.beside_diskann(space, ours.ensure(space, ORDER))}


def chosen_setting(space: Workspace) -> Setting:
    """Return the setting that this part chose earlier; the reader's defaults if it has not run."""
    earlier = space.earlier("qps")
    return Setting() if earlier is None else Setting(**earlier["setting"])


def c_options(space: Workspace) -> list[str]:
    """Return arguments of the C programs: the chosen setting, the list size of recall 0.95, the second half of queries.

    They enter by the navigation graph, as the setting does unless centroids were faster.
    """
    setting, earlier = chosen_setting(space), space.earlier("qps")
    size = _SIZE if earlier is None else sizes_at(earlier["tuning_rows"]["indexmill"], (RECALL,))[0]
    options = {
        "k": K, "L": size, "W": setting.beam_width, "policy": setting.policy, "threads": setting.threads,
        "inflight": setting.inflight,
    }  # fmt: skip
    skip = native.skip_to(space.data.query, space.halves["report"][0])
    return [*(f"{name}={value}" for name, value in options.items()), skip]
