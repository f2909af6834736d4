"""The reader's kernels as compiled code calls them: claims beside plain sums."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError
from tests.oracles import kernels as oracle
from tests.oracles.graph import vamana as graphs

from indexmill.builders.nearest.panels import all_scores, in_panels, nearest_in_panels
from indexmill.builders.quantize.pq import label_rows
from indexmill.builders.vamana.prune import PruneRule, robust_prune, sort_candidates
from indexmill.reader import kernels

TYPES = ("float32", "float16", "uint8", "int8")
METRICS = ("l2", "ip")


@njit
def _distances(queries: Any, vectors: Any, ids: Any, out: Any) -> None:
    kernels.squared_distances(queries, 0, vectors, ids, ids.size, out)


@njit
def _products(queries: Any, vectors: Any, ids: Any, out: Any) -> None:
    kernels.inner_products(queries, 0, vectors, ids, ids.size, out)


@njit
def _row(vectors: Any, space: Any) -> Any:
    return kernels.float_row(vectors, 0, space)


@njit
def _codes(table: Any, codes: Any, ids: Any, out: Any) -> None:
    kernels.code_distances(
        table.ctypes.data, codes.shape[1], codes.ctypes.data, ids.ctypes.data, ids.size, out.ctypes.data
    )


def measure(query: np.ndarray, rows: np.ndarray, metric: str, ids: np.ndarray | None = None) -> np.ndarray:
    """Call the kernel of a metric for all rows, or those of `ids`."""
    ids = np.arange(len(rows), dtype=np.uint32) if ids is None else ids
    out = np.full(len(ids), np.nan, np.float32)
    query, rows = (bits(each) for each in (query, rows))
    {"l2": _distances, "ip": _products}[metric](query.reshape(1, -1), rows, ids, out)
    return out


def bits(values: np.ndarray) -> np.ndarray:
    """Return float16 as compiled code takes it."""
    return values.view(np.uint16) if values.dtype == np.float16 else values


def some_rows(n: int, dim: int, dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype in ("uint8", "int8"):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max + 1, (n, dim)).astype(dtype)
    return (rng.normal(size=(n, dim)) * 10).astype(dtype)


def bound(query: np.ndarray, rows: np.ndarray, metric: str) -> np.ndarray:
    """The error that the module states: roundings on the way of a component, each of a 2^24th."""
    roundings = math.ceil(rows.shape[1] / 32) + 6 + 2 * (metric == "l2")
    return roundings * 2.0**-24 * oracle.sizes(query, rows, metric)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", TYPES)
def test_distances_are_plain_sums(dtype: str, metric: str) -> None:
    for dim in (1, 2, 3, 7, 31, 32, 33, 64, 65, 100, 127, 255, 257, 1000, 4096):
        rows = some_rows(9, dim, dtype, dim)
        query = some_rows(1, dim, dtype, dim + 1)[0]
        found, exact = measure(query, rows, metric), oracle.distances(query, rows, metric)
        if dtype in ("uint8", "int8"):
            np.testing.assert_array_equal(found, exact.astype(np.float32))
        else:
            assert (np.abs(found - exact) <= bound(query, rows, metric)).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127)])
def test_extreme_components_do_not_overflow(dtype: str, low: int, high: int, metric: str) -> None:
    for dim in (1, 4096, 70_001):
        rows = np.stack([np.full(dim, x, dtype) for x in (low, high)])
        for query in rows:
            expected = oracle.distances(query, rows, metric).astype(np.float32)
            np.testing.assert_array_equal(measure(query, rows, metric), expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_may_begin_at_any_component(dtype: str) -> None:
    size = np.dtype(dtype).itemsize
    for dim in (1, 5, 48, 131):
        held = some_rows(1, 12 * dim + 70, dtype, dim).tobytes()
        for shift in (1, 2, 3, 7, 15, 31, 63):
            rows = np.frombuffer(held, dtype, 12 * dim, shift * size).reshape(12, dim)
            query = np.frombuffer(held, dtype, dim, (70 - shift) * size)
            for metric in METRICS:
                apart = measure(query.copy(), rows.copy(), metric)
                np.testing.assert_array_equal(measure(query, rows, metric), apart)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", TYPES)
def test_ids_pick_rows_in_their_order(dtype: str, metric: str) -> None:
    rows = some_rows(50, 33, dtype, 1)
    ids = np.random.default_rng(2).integers(0, 50, 77).astype(np.uint32)
    np.testing.assert_array_equal(
        measure(rows[3], rows, metric, ids), measure(rows[3], rows, metric)[ids.astype(np.int64)]
    )
    assert measure(rows[3], rows, metric, ids[:0]).size == 0


@pytest.mark.parametrize("metric", METRICS)
def test_halves_are_compared_as_the_floats_they_stand_for(metric: str) -> None:
    for dim in (1, 17, 96, 130):
        rows = some_rows(20, dim, "float16", dim)
        wide = rows.astype(np.float32)
        np.testing.assert_array_equal(measure(rows[0], rows, metric), measure(wide[0], wide, metric))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_infinity_and_nan_come_through(dtype: str) -> None:
    for dim in (1, 31, 40):
        rows = np.ones((3, dim), dtype)
        rows[0, dim - 1], rows[1, 0] = np.inf, np.nan
        query = np.ones(dim, dtype)
        for metric in METRICS:
            found = measure(query, rows, metric)
            assert found[0] == np.inf
            assert np.isnan(found[1])
            assert found[2] == (0 if metric == "l2" else dim)


def test_subnormal_halves_are_not_flushed() -> None:
    tiny = np.full((1, 3), 2.0**-24, np.float16)
    assert measure(tiny[0], tiny, "ip")[0] == np.float32(3 * 2.0**-48)


@pytest.mark.parametrize("chunks", [1, 5, 32, 96])
def test_codes_are_looked_up_in_the_order_of_their_chunks(chunks: int) -> None:
    rng = np.random.default_rng(chunks)
    table = (rng.random((chunks, 256)) * 100).astype(np.float32)
    codes = rng.integers(0, 256, (40, chunks)).astype(np.uint8)
    for n in (0, 1, 3, 4, 5, 39):
        ids = rng.integers(0, 40, n).astype(np.uint32)
        out = np.full(n, np.nan, np.float32)
        _codes(table, codes, ids, out)
        np.testing.assert_array_equal(out, oracle.code_distances(table, codes[ids.astype(np.int64)]))


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_is_pruned_as_by_the_oracle(dtype: str) -> None:
    for dim, n in ((2, 30), (9, 60), (70, 120)):
        rng = np.random.default_rng(dim)
        vectors = rng.integers(0, 100, (n, dim)).astype(dtype)  # so small that float32 sums are exact
        ids = rng.permutation(np.arange(1, n, dtype=np.uint32))
        far = measure(vectors[0], vectors, "l2", ids)
        assert sort_candidates(ids, far, len(ids)) == n - 1
        for degree in (1, 8, 40):
            for saturate in (True, False):
                out, rule = np.zeros(degree, np.uint32), PruneRule(1.2, saturate)
                chosen = out[: robust_prune(bits(vectors), ids, far, n - 1, degree, rule, out)].tolist()
                alpha, everyone = float(np.float32(1.2)), list(range(1, n))
                assert chosen == graphs.robust_prune(vectors, 0, everyone, degree, alpha, saturate)


def test_sorting_puts_ties_in_the_order_of_ids_and_drops_repeated_ones() -> None:
    rng = np.random.default_rng(5)
    for n in (0, 1, 2, 40, 700):
        ids = rng.integers(0, max(1, n // 2), n).astype(np.uint32)
        far = (ids % 7).astype(np.float32)
        expected = sorted({(float(d), int(v)) for d, v in zip(far, ids, strict=True)})
        left = sort_candidates(ids, far, n)
        assert list(zip(far[:left].tolist(), ids[:left].tolist(), strict=True)) == expected


@pytest.mark.parametrize("dtype", TYPES)
def test_of_rows_without_components_none_is_chosen(dtype: str) -> None:
    """In a process of its own, which a panic behind a C interface would end."""
    kernel = {
        "float32": "im_prune_f32",
        "float16": "im_prune_f16",
        "uint8": "im_prune_u8",
        "int8": "im_prune_i8",
    }[dtype]
    code = f"""
import ctypes
import numpy as np
from indexmill.reader import _native
prune = ctypes.CDLL(_native.__file__).{kernel}
prune.restype = ctypes.c_int64
ids, distances, out = np.arange(3, dtype=np.uint32), np.zeros(3, np.float32), np.full(2, 9, np.uint32)
address = lambda array: ctypes.c_void_p(array.ctypes.data)
arguments = [ctypes.c_int64(3), ctypes.c_int64(2), ctypes.c_float(1.2), ctypes.c_bool(True), address(out)]
rows = np.zeros(8)
chosen = prune(address(rows), ctypes.c_int64(0), address(ids), address(distances), *arguments)
assert (chosen, out.tolist()) == (0, [9, 9]), (chosen, out)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kernel", ["nearest_u8", "scores_u8", "nearest_centres"])
def test_of_rows_without_components_nothing_is_written(kernel: str) -> None:
    """In a process of its own, which a panic behind a C interface would end."""
    code = f"""
import ctypes
import numpy as np
from indexmill.reader import _native
kernel, count = getattr(ctypes.CDLL(_native.__file__), "im_{kernel}"), ctypes.c_int64
address = lambda array: ctypes.c_void_p(array.ctypes.data)
floats, bounds, out = np.zeros(64, np.float32), np.zeros(2, np.int64), np.full(32, 9, np.uint32)
rows = [address(floats), count(0), address(bounds), count(2)]  # two rows, the same one
panels = [address(floats), address(bounds)]
{{
    "nearest_u8": lambda: kernel(*rows, *panels, address(bounds), count(0), count(2), address(out), address(out)),
    "scores_u8": lambda: kernel(*rows, *panels, count(0), address(out)),
    "nearest_centres": lambda: kernel(
        address(floats), count(0), count(2), address(floats), count(2), address(bounds), count(1), address(out)
    ),
}}["{kernel}"]()
assert (out == 9).all(), out
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("other", [np.asfortranarray, lambda rows: np.repeat(rows, 2, axis=1)[:, ::2]])
def test_arrays_of_another_order_are_refused_when_their_caller_is_compiled(other: Any) -> None:
    rows, ids, out = np.ones((4, 3), np.float32), np.zeros(1, np.uint32), np.zeros(1, np.float32)
    for arrays in [(other(rows), rows), (rows, other(rows))]:
        with pytest.raises(TypingError):
            _distances(*arrays, ids, out)
        with pytest.raises(TypingError):
            _products(*arrays, ids, out)
    with pytest.raises(TypingError):
        _row(other(rows), out)
    chosen = np.zeros(2, np.uint32)
    with pytest.raises(TypingError):
        robust_prune(other(rows), ids, out, 1, 2, PruneRule(1.2), chosen)
    with pytest.raises(TypingError):
        label_rows(other(rows), rows, np.array([0, 3]), np.zeros((4, 1), np.uint8))
    coded = np.ones((4, 8), np.uint8)
    panels = in_panels(coded)
    nearest_in_panels(coded, panels, 1, threads=1)
    with pytest.raises(TypingError):
        nearest_in_panels(other(coded), panels, 1, threads=1)
    with pytest.raises(TypingError):
        all_scores(other(coded), np.arange(4), panels.bytes, panels.offsets, np.zeros((4, 16), np.int32))
