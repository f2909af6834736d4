"""Part *compactness*: the same vectors as float32, where 6 nodes share a page instead of 15."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.dataset import read_bin, write_bin
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.workspace import Workspace


def measure(space: Workspace) -> dict[str, Any]:
    """Take the proxies of the float32 vectors' star order from its manifest; build it unless it is there."""
    index = space.index("float32")
    if not _is_built(index, space):
        base = space.out / "base.fbin"
        write_bin(base, read_bin(space.data.base))
        ours.build_fresh(space, base, index, "star", space.out / "work-float32")
        base.unlink()
    return {"layout": ours.manifest(index)["layout"], "order_s": ours.stage_seconds(index)["order"]}


def _is_built(index: Path, space: Workspace) -> bool:
    if not (index / "manifest.json").exists():
        return False
    return bool(ours.manifest(index)["input"]["n_vectors"] == space.data.shape()[0])
