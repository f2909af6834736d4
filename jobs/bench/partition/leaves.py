"""Part *leaves*: multiply-adds a second of leaves, beside the most that the processor's unit reaches on one tile."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from indexmill.builders.nearest.panels import PANEL, all_scores, in_panels
from indexmill.builders.partition.build import FANOUTS, neighbours_a_leaf
from indexmill.builders.partition.carve import carve
from indexmill.builders.partition.leaf_lists import leaf_lists
from indexmill.jobs.bench.common.curves import ratio
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import MAX_DEGREE, SEED, THREADS
from indexmill.jobs.bench.partition.builds import Builds
from indexmill.reader import native
from indexmill.reader.threads import run_blocks

#: Vectors of a set, from its beginning.
_ROWS = 100_000
#: Rows and points of a tile, which stay in a core's nearest caches, and times that a thread multiplies it.
_TILE_ROWS, _TILE_POINTS, _TIMES = 96, 64, 2000


def measure(space: Builds) -> dict[str, Any]:
    """Compare the leaves of each set in turns with one tile; giga multiply-adds a second of all threads, medians."""
    rows = []
    for name, data in space.sets.items():
        vectors = np.array(read_bin(data.base)[:_ROWS])
        leaves = carve(vectors, FANOUTS, seed=SEED, threads=THREADS)
        dim, sizes = vectors.shape[1], np.diff(leaves.starts).astype(np.float64)
        k, places = (
            neighbours_a_leaf(MAX_DEGREE, leaves.copies),
            np.arange(len(leaves.members), dtype=np.uint32),
        )
        leaf_lists(vectors[:1000], carve(vectors[:1000], FANOUTS, seed=SEED), k, places[:1000])  # compiles
        _, misses = leaf_lists(vectors, leaves, k, places, THREADS)
        taken = [
            (
                _seconds(lambda: leaf_lists(vectors, leaves, k, places, THREADS)),  # noqa: B023 - called at once
                _seconds(lambda: _multiply(dim)),  # noqa: B023
            )
            for _ in range(space.rounds)
        ]
        products = float(sizes @ sizes) * dim
        tile = THREADS * _TIMES * _TILE_ROWS * _TILE_POINTS * dim
        row = {
            "set": name, "n": len(vectors), "dim": dim, "products": native.unit()["products"],
            "neighbours_missed": misses.share,
            "leaves_gmac_s": products / median(one for one, _ in taken) / 1e9,
            "tile_gmac_s": tile / median(other for _, other in taken) / 1e9,
        }  # fmt: skip
        rows.append(row | {"share": ratio(row["leaves_gmac_s"], row["tile_gmac_s"])})
    return {"rows": rows}


def _seconds(do: Callable[[], Any]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def _multiply(dim: int) -> None:
    """Multiply one tile of bytes again and again, on every thread."""
    points = np.random.default_rng(SEED).integers(0, 256, (_TILE_POINTS, dim), dtype=np.uint8)
    rows = np.resize(points, (_TILE_ROWS, dim))
    panels, numbers = in_panels(points), np.arange(_TILE_ROWS)

    def block(first: int, last: int) -> None:
        out = np.empty((_TILE_ROWS, PANEL * len(panels.offsets)), np.int32)
        for _ in range(first, last):
            all_scores(rows, numbers, panels.bytes, panels.offsets, out)

    run_blocks(block, THREADS * _TIMES, _TIMES, THREADS)
