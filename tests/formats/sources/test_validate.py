"""Vectors without a usable distance and ids that stand for two vectors are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.source import VectorBatch, read_queries
from indexmill.formats.sources.validate import check_batch, check_unique_ids


def batch(vectors: NDArray[Any]) -> VectorBatch:
    return VectorBatch(1000, vectors, None, None, "dir/a.fbin", 50)


def is_usable(vectors: NDArray[Any], metric: str) -> bool:
    """Whether a batch of `vectors` is accepted."""
    try:
        check_batch(batch(vectors), metric)
    except InputError:
        return False
    return True


def are_unique(ids: pa.Array | pa.ChunkedArray) -> bool:
    """Whether user ids of one file are accepted."""
    try:
        check_unique_ids(ids, [(0, "f", 0)])
    except InputError:
        return False
    return True


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_component_names_file_row_and_component(metric: str, dtype: str, value: float) -> None:
    vectors = np.ones((9, 4), dtype)
    vectors[6, 2] = vectors[8, 0] = value
    with pytest.raises(
        InputError, match=rf"dir/a\.fbin: row 56: component 2 is {value}; expected a finite number"
    ):
        check_batch(batch(vectors), metric)


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int8"])
def test_zero_vector_is_refused_under_cosine_only(dtype: str) -> None:
    vectors = np.ones((5, 3), dtype)
    vectors[3] = 0
    assert is_usable(vectors, "l2")
    assert is_usable(vectors, "ip")
    with pytest.raises(InputError, match=r"dir/a\.fbin: row 53: zero vector; expected a direction"):
        check_batch(batch(vectors), "cosine")


def test_tiny_vector_is_not_zero() -> None:
    assert is_usable(np.full((2, 3), 1e-40, np.float32), "cosine")


def test_negative_zero_is_zero() -> None:
    with pytest.raises(InputError, match="zero vector"):
        check_batch(batch(np.full((1, 2), -0.0, np.float32)), "cosine")


def test_length_beyond_float32_distances_is_refused() -> None:
    vectors = np.ones((3, 2), np.float32)
    vectors[1] = 1e19
    with pytest.raises(InputError, match=r"row 51: length 1\.41e\+19; expected at most 9\.22e\+18, .*scale"):
        check_batch(batch(vectors), "l2")


def test_largest_float16_is_usable() -> None:
    assert is_usable(np.full((2, 4096), 65504, np.float16), "l2")


@given(
    vectors=hnp.arrays(
        np.float32, st.tuples(st.integers(1, 6), st.integers(1, 4)), elements=st.floats(width=32)
    ),
    metric=st.sampled_from(["l2", "cosine"]),
)
def test_check_agrees_with_looking_at_each_row(vectors: NDArray[np.float32], metric: str) -> None:
    wide = vectors.astype(np.float64)
    norms = (wide**2).sum(axis=1)
    limit = float(np.finfo(np.float32).max) / 4
    if (np.isfinite(wide).all(axis=1) & (np.abs(norms / limit - 1) < 1e-5)).any():
        return  # rounding decides
    bad = ~(norms <= limit) | ((metric == "cosine") & (wide == 0).all(axis=1))
    if bad.any():
        with pytest.raises(InputError, match=r"row 5\d"):
            check_batch(batch(vectors), metric)
    else:
        assert is_usable(vectors, metric)


def test_queries_with_nan_are_refused(tmp_path: Any) -> None:
    vectors = np.ones((4, 2), np.float32)
    vectors[2, 1] = np.nan
    np.save(tmp_path / "q.npy", vectors)
    with pytest.raises(InputError, match=r"q\.npy: row 2: component 1 is nan"):
        read_queries(tmp_path / "q.npy")


ORIGINS = [(0, "a.parquet", 0), (3, "a.parquet", 3), (5, "b.parquet", 0)]


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        (pa.array([10, 11, 12, 13, 14, 15, 11, 10], pa.int64()), "11"),
        (pa.array([10, 11, 12, 13, 14, 15, 11, 10], pa.uint64()), "11"),
        (pa.array(["a", "b", "c", "d", "e", "f", "b", "a"]), "'b'"),
        (pa.array([b"a", b"b", b"c", b"d", b"e", b"f", b"b", b"a"]), "b'b'"),
    ],
)
def test_first_repeated_id_is_named_with_both_rows(ids: pa.Array, shown: str) -> None:
    message = rf"id {shown} is not unique: a\.parquet row 1 and b\.parquet row 1; expected one vector"
    for form in (ids, pa.chunked_array([ids[:3], ids[3:5], ids[5:]])):
        with pytest.raises(InputError, match=message):
            check_unique_ids(form, ORIGINS)


def test_unique_ids_pass() -> None:
    assert are_unique(pa.chunked_array([["a", "b"], ["c"]]))
    assert are_unique(pa.array(range(1000)))


@given(ids=st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_named_rows_are_the_first_repetition(ids: list[int]) -> None:
    seen: dict[int, int] = {}
    expected = None
    for row, value in enumerate(ids):
        if value in seen:
            expected = (value, seen[value], row)
            break
        seen[value] = row
    if expected is None:
        assert are_unique(pa.array(ids))
    else:
        value, first, second = expected
        with pytest.raises(InputError, match=rf"id {value} is not unique: f row {first} and f row {second};"):
            check_unique_ids(pa.array(ids), [(0, "f", 0)])
