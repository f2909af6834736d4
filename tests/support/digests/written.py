"""Files and answers that a case wrote, and a check that it took the path it stands for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Written: TypeAlias = Path | dict[str, NDArray[Any]]
Cases: TypeAlias = Iterator[tuple[str, Written]]
#: Counters of a search that are times, and the one that depends on where ids are.
LEFT_OUT = ("latency_us", "io_wait_us", "id_pages_read")


def answers(found: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of true neighbours, or of a search or range search with its counters."""
    if not hasattr(found, "counters"):
        return {"ids": np.asarray(found.ids), "distances": np.asarray(found.distances)}
    arrays = {key: getattr(found, key) for key in ("vector_ids", "slots", "scores")}
    if hasattr(found, "starts"):
        arrays["starts"] = found.starts
    return arrays | {f"counters.{key}": value for key, value in found.counters.items() if key not in LEFT_OUT}


def manifest(index: Path) -> bytes:
    """Return manifest.json of an index."""
    return (index / "manifest.json").read_bytes()


def stages(index: Path) -> set[str]:
    """Return the names of the stages that built an index."""
    return set(json.loads((index / "run.json").read_text())["seconds"])


def check(holds: bool, what: str) -> None:
    """Raise an error unless a case took the path it stands for."""
    if not holds:
        raise RuntimeError(f"{what}; change the case")
