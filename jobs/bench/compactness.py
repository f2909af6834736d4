"""Part *compactness*: the same vectors as float32, where 6 nodes share a page instead of 15."""

from __future__ import annotations

from typing import Any

import numpy as np
import ours
from dataset import read_bin, write_bin
from workspace import Workspace


def measure(space: Workspace) -> dict[str, Any]:
    """Build the star order of the float32 vectors; report the proxies that its manifest holds."""
    base = space.out / "base.fbin"
    write_bin(base, read_bin(space.data.base), np.float32)
    index = space.index("float32")
    usage = ours.build_fresh(space, base, index, "star", space.out / "work-float32")
    base.unlink()
    return {
        **usage.to_dict(),
        "layout": ours.manifest(index)["layout"],
        "order_s": ours.stage_seconds(index)["order"],
    }
