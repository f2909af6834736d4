"""Part *leaves*: multiply-adds a second of leaves, beside the most that the processor's unit reaches.

Measured: products of a few rows with points that stay in the caches, again and again within one call, for several
numbers of points, of which the fastest counts. Stated: what the unit's ports can do in a cycle, at the clock that a
chain of multiplications shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from indexmill.builders.nearest.panels import PANEL, all_scores, in_panels
from indexmill.builders.partition.build import FANOUTS, neighbours_a_leaf
from indexmill.builders.partition.carve import carve
from indexmill.builders.partition.leaf_lists import leaf_lists
from indexmill.formats.kernel import kernel
from indexmill.jobs.bench.common.curves import ratio
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import MAX_DEGREE, SEED, THREADS
from indexmill.jobs.bench.partition.builds import Builds
from indexmill.reader import native
from indexmill.reader.threads import run_blocks

#: Vectors of a set, from its beginning.
_ROWS = 100_000
#: Rows of a tile, the points that it may have, and its multiply-adds on each thread, about.
_TILE_ROWS, _TILE_POINTS, _TILE_PRODUCTS = 96, (64, 256, 1024), 4_000_000_000
#: Multiply-adds of bytes in a cycle at most, by `native.unit()["products"]`: of two ports of 512 bits; of two of 256
#: bits, whose components are widened to 16; of the tile unit.
MOST_A_CYCLE = {"avx512vnni": 128, "avx2": 32, "amx": 1024}
#: Steps of the chain that shows the clock, and the cycles of each: a multiplication takes three, an addition one.
_STEPS, _STEP_CYCLES = 100_000_000, 4


def measure(space: Builds) -> dict[str, Any]:
    """Compare the leaves of each set in turns with tiles; giga multiply-adds a second of all threads, medians."""
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
        tiles = [Tile(points, dim) for points in _TILE_POINTS]
        works: list[Callable[[], Any]] = [
            partial(leaf_lists, vectors, leaves, k, places, THREADS),
            *tiles,
        ]
        taken = [[_seconds(work) for work in works] for _ in range(space.rounds)]
        products = [float(sizes @ sizes) * dim, *(tile.products for tile in tiles)]
        leaves_gmac_s, *tiles_gmac_s = (
            done / median(seconds) / 1e9
            for done, seconds in zip(products, zip(*taken, strict=True), strict=True)
        )
        unit, clock = native.unit()["products"], clock_ghz()
        fastest = max(tiles_gmac_s)
        rows.append({
            "set": name, "n": len(vectors), "dim": dim, "products": unit, "neighbours_missed": misses.share,
            "leaders_missed": leaves.misses.leaders_share,
            "leaves_gmac_s": leaves_gmac_s, "tile_gmac_s": fastest, "share": ratio(leaves_gmac_s, fastest),
            "tile_points": _TILE_POINTS[tiles_gmac_s.index(fastest)], "clock_ghz": clock,
            "a_cycle": fastest / THREADS / clock, "most_a_cycle": MOST_A_CYCLE.get(unit),
            "share_of_ports": leaves_gmac_s / THREADS / clock / most if (most := MOST_A_CYCLE.get(unit)) else None,
        })  # fmt: skip
    return {"rows": rows}


def _seconds(do: Callable[[], Any]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


class Tile:
    """Products of the same rows with the same points again and again, on every thread; call it to compute them.

    Parameters
    ----------
    n_points, dim : int

    Attributes
    ----------
    products : int
        Multiply-adds of a call.
    """

    def __init__(self, n_points: int, dim: int) -> None:
        points = np.random.default_rng(SEED).integers(0, 256, (n_points, dim), dtype=np.uint8)
        self._rows, self._panels = np.resize(points, (_TILE_ROWS, dim)), in_panels(points)
        once = _TILE_ROWS * n_points * dim
        self._times = -(-_TILE_PRODUCTS // once)
        self.products = THREADS * self._times * once
        self._multiply(1)  # compiles

    def __call__(self) -> None:
        """Compute the products."""
        run_blocks(
            lambda first, last: self._multiply(last - first), THREADS * self._times, self._times, THREADS
        )

    def _multiply(self, times: int) -> None:
        out = np.empty((_TILE_ROWS, PANEL * len(self._panels.offsets)), np.int32)
        _again(self._rows, np.arange(_TILE_ROWS), self._panels.bytes, self._panels.offsets, out, times)


@kernel
def _again(
    vectors: Any, rows: Any, data: Any, offsets: Any, out: Any, times: int
) -> None:  # pragma: no cover - compiled
    """Write the same scores so many times: between two tiles nothing is interpreted."""
    for _ in range(times):
        all_scores(vectors, rows, data, offsets, out)


def clock_ghz() -> float:
    """Return the cycles of a nanosecond, as a chain of multiplications and additions shows them on all threads."""

    def chain(first: int, last: int) -> float:
        began = time.thread_time()  # others may use the machine, too
        _chain(np.uint64(last - first), np.uint64(SEED + 2), np.uint64(SEED))
        return time.thread_time() - began

    chain(0, 1)  # compiles
    seconds = min(run_blocks(chain, 3 * THREADS * _STEPS, _STEPS, THREADS))
    return _STEP_CYCLES * _STEPS / seconds / 1e9


@kernel
def _chain(steps: Any, factor: Any, term: Any) -> Any:  # pragma: no cover - compiled
    """Multiply and add in turns, each result of the one before; factor and term are not known when it is compiled."""
    value = factor
    for _ in range(steps):
        value = value * factor + term
    return value
