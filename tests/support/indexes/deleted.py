"""Small indexes of every kind to delete from, and what a search of all of one finds."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import indexmill

N, DIM, LISTS = 120, 6, 5
KINDS: dict[str, dict[str, Any]] = {
    "graph": {"R": 8, "L": 20, "pq_bytes": 3, "entries": 4},
    "ivf": {"kind": "ivf", "lists": LISTS, "batch_vectors": 70},
    "lsh": {"kind": "lsh"},
}
VECTORS = np.random.default_rng(8).integers(0, 60, (N, DIM)).astype(np.uint8)
NAMES = [f"ü{i}" for i in range(N)]


@dataclass(frozen=True)
class Built:
    """An index of each kind, and the vectors that a search of all of it finds."""

    folder: Path
    found: dict[str, set[int]]

    def copy(self, kind: str, out: Path) -> Path:
        """Copy the index of a kind."""
        return shutil.copytree(self.folder / kind, out)


def build_all(folder: Path) -> Built:
    """Build an index of each kind; ids are those of `NAMES`."""
    for kind, parameters in KINDS.items():
        indexmill.build(VECTORS, folder / kind, ids=NAMES, workers=1, **parameters)
    return Built(folder, {kind: found_in(folder / kind)[0] for kind in KINDS})


def found_in(index: Path) -> tuple[set[int], NDArray[np.int64]]:
    """Search for all vectors with four queries; return those found, and the vector ids, (4, N)."""
    opened: Any = indexmill.open(index)
    how: dict[str, dict[str, Any]] = {
        "graph": {"L": N}, "ivf": {"nprobe": LISTS}, "lsh": {"candidates": 10**6}
    }  # fmt: skip
    found = opened.search(VECTORS[:4], N, **how[opened.kind]).vector_ids
    return set(found[found >= 0].tolist()), found
