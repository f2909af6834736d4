"""Measure the reader's kernels, called from numba, beside what numba makes of the same loops.

One thread. Both sides get the same arrays in turns, and every figure is the median of the rounds. Both results
must be the same bits, except distances of float vectors, whose sums numba adds in an order of its own: those must be
close.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from indexmill.builders.nearest.products import nearest_points
from indexmill.jobs.bench.common.benchmark import ROUNDS_OPTION, Benchmark
from indexmill.jobs.bench.common.parameters import ALPHA, SEED
from indexmill.jobs.bench.kernels import loops

TYPES = ("float32", "float16", "uint8", "int8")
DIMS = (96, 128, 256, 960)
#: Bytes of the rows: within a core's own cache, and far beyond it.
NEAR_BYTES, FAR_BYTES = 1 << 20, 256 << 20
ROUNDS = 7
#: Queries, and rows that each is compared with.
N_QUERIES, N_ROWS = 2000, 64
CHUNKS = (16, 32, 64)
#: Vertices that are pruned, vectors that they are drawn from, dimensions that these really have, and what is chosen.
N_PRUNED, N_VECTORS, LATENT, DEGREE = 1000, 10_000, 16, 32
CANDIDATES = (64, 150)
_LOOPS = {metric: {dtype: loops.looped(metric, dtype) for dtype in TYPES} for metric in ("l2", "ip")}
_NATIVE = {"l2": loops.native_l2, "ip": loops.native_ip}


class Sizes(NamedTuple):
    """Sizes of a measurement."""

    near_bytes: int = NEAR_BYTES
    far_bytes: int = FAR_BYTES
    rounds: int = ROUNDS
    queries: int = N_QUERIES
    pruned: int = N_PRUNED
    vectors: int = N_VECTORS


def distances(sizes: Sizes) -> dict[str, Any]:
    """Nanoseconds a distance: every type and metric, rows in a cache and beyond it."""
    rows = []
    for dtype in TYPES:
        for dim in DIMS:
            far = _rows(dtype, sizes.far_bytes // (dim * np.dtype(dtype).itemsize), dim)
            near = far[: max(1, sizes.near_bytes // far[:1].nbytes)]
            for metric in ("l2", "ip"):
                row: dict[str, Any] = {"dtype": dtype, "dim": dim, "metric": metric}
                for where, vectors in (("near", near), ("far", far)):
                    row |= {
                        f"{where}_{side}_ns": ns for side, ns in _compared(sizes, metric, vectors).items()
                    }
                rows.append(row)
    return {"rows": rows}


def codes(sizes: Sizes) -> dict[str, Any]:
    """Nanoseconds a distance of codes by the table of a query."""
    rng = np.random.default_rng(SEED)
    rows = []
    for chunks in CHUNKS:
        held = rng.integers(0, 256, (sizes.far_bytes // 8 // chunks, chunks)).astype(np.uint8)
        tables = rng.random((4, chunks, 256), np.float32)
        ids = rng.integers(0, len(held), (4, sizes.queries // 4 * N_ROWS)).astype(np.uint32)
        found = np.zeros(ids.shape, np.float32), np.zeros(ids.shape, np.float32)
        ns = _in_turns(
            sizes.rounds,
            ids.size,
            partial(loops.native_codes, tables, held, ids, found[0]),
            partial(loops.looped_codes, tables, held, ids, found[1]),
        )
        np.testing.assert_array_equal(*found)
        rows.append({"chunks": chunks, **ns})
    return {"rows": rows}


def prune(sizes: Sizes) -> dict[str, Any]:
    """Microseconds to sort and to prune the candidates of a vertex."""
    rows = []
    for dtype in ("uint8", "float32"):
        for dim in (128, 256):
            vectors = _clustered(sizes.vectors, dim, dtype)
            for n in CANDIDATES:
                vertices = vectors[: sizes.pruned]
                ids = np.ascontiguousarray(nearest_points(vertices, vectors, n + 1)[:, 1:])
                far = np.empty(ids.shape, np.float32)
                loops.native_l2(vertices, vectors, ids, far)
                rows.append({"dtype": dtype, "dim": dim, "n": n, **_pruned(sizes, vectors, ids, far)})
    return {"rows": rows}


def _pruned(sizes: Sizes, vectors: Any, ids: Any, far: Any) -> dict[str, float]:
    shuffled = np.random.default_rng(SEED).permuted(np.tile(np.arange(ids.shape[1]), (len(ids), 1)), axis=1)
    mixed = np.take_along_axis(ids, shuffled, 1), np.take_along_axis(far, shuffled, 1)
    turns = [[column.copy() for column in mixed] for _ in range(2)]

    def sort(side: int, kernel: Callable[..., None]) -> None:
        for column, source in zip(turns[side], mixed, strict=True):
            column[:] = source
        kernel(*turns[side])

    sorting = _in_turns(
        sizes.rounds, len(ids), lambda: sort(0, loops.native_sorts), lambda: sort(1, loops.looped_sorts)
    )
    for ours, theirs in zip(*turns, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    ids, far = turns[0]
    found = [(np.zeros((len(ids), DEGREE), np.uint32), np.zeros(len(ids), np.int64)) for _ in range(2)]
    pruning = _in_turns(
        sizes.rounds,
        len(ids),
        lambda: loops.native_prunes(vectors, ids, far, ALPHA, *found[0]),
        lambda: loops.looped_prunes(vectors, ids, far, ALPHA, *found[1]),
    )
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return {f"sort_{name}": value for name, value in sorting.items()} | {
        f"prune_{name}": value for name, value in pruning.items()
    }


def _compared(sizes: Sizes, metric: str, vectors: Any) -> dict[str, float]:
    rng = np.random.default_rng(SEED)
    queries = vectors[rng.integers(0, len(vectors), sizes.queries)]
    ids = rng.integers(0, len(vectors), (sizes.queries, N_ROWS)).astype(np.uint32)
    found = np.zeros(ids.shape, np.float32), np.zeros(ids.shape, np.float32)
    loop, native = _LOOPS[metric][vectors.dtype.name], _NATIVE[metric]
    plain = [a.view(np.uint16) if a.dtype == np.float16 else a for a in (queries, vectors)]
    ns = _in_turns(
        sizes.rounds, ids.size, lambda: native(*plain, ids, found[0]), lambda: loop(*plain, ids, found[1])
    )
    if vectors.dtype.kind == "f":
        np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-3 * vectors.shape[1])
    else:
        np.testing.assert_array_equal(*found)
    return ns


def _in_turns(
    rounds: int, items: int, native: Callable[[], None], loop: Callable[[], None]
) -> dict[str, float]:
    """Return the median nanoseconds an item of both sides, which run in turns, once beforehand."""
    spent: dict[str, list[float]] = {"native": [], "numba": []}
    for turn in range(rounds + 1):
        for side, run in (("native", native), ("numba", loop)):
            began = time.perf_counter_ns()
            run()
            if turn > 0:
                spent[side].append((time.perf_counter_ns() - began) / items)
    return {side: median(values) for side, values in spent.items()}


def _rows(dtype: str, n: int, dim: int) -> Any:
    rng = np.random.default_rng(SEED)
    block = rng.integers(0, 256, (min(n, 4096), dim))
    some = (block - 128).astype(np.int8) if dtype == "int8" else block.astype(dtype)
    return np.ascontiguousarray(np.resize(some, (n, dim)))


def _clustered(n: int, dim: int, dtype: str) -> Any:
    """Return vectors of `LATENT` dimensions within `dim`, among which a prune has something to drop."""
    rng = np.random.default_rng(SEED)
    wide = rng.normal(size=(n, LATENT)) @ rng.normal(size=(LATENT, dim))
    if dtype == "uint8":
        return np.clip(wide * 12 + 128, 0, 255).astype(np.uint8)
    return wide.astype(np.float32)


BENCHMARK = Benchmark[Sizes](
    "kernels",
    {"distances": distances, "codes": codes, "prune": prune},
    sets=(),
    space=lambda run: Sizes(rounds=run.options.rounds or ROUNDS),
    data=lambda sizes: [
        {"name": "generated", "n_vectors": sizes.vectors, "dim": max(DIMS), "dtype": ", ".join(TYPES)}
    ],
    parameters={"rounds": ROUNDS, "threads": 1},
    options=ROUNDS_OPTION,
)

if __name__ == "__main__":
    BENCHMARK.main()
