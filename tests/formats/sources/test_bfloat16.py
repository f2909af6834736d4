"""bfloat16 vectors are read as float16, exactly where float16 can, and are refused where it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.support.sources import Array, check_source, make, write_hdf5

from indexmill.formats.errors import InputError
from indexmill.formats.sources.bfloat16 import as_float16, widened
from indexmill.formats.sources.source import array_source, open_source, read_queries
from indexmill.formats.sources.validate import check_batch

#: Distance of a component that is rounded: half of the least step of float16.
HALF_STEP = 2.0**-25


def cut(values: Any) -> Array:
    """Return float32 values as bfloat16 without a type, the low bits cut off."""
    bits = np.asarray(values, np.float32).view(np.uint32) >> 16
    return bits.astype(np.uint16).view("V2")


def save_as_ml_dtypes_does(path: Path, vectors: Array) -> None:
    np.save(path, vectors)
    data = path.read_bytes()
    assert data.count(b"'|V2'") == 1
    path.write_bytes(data.replace(b"'|V2'", b"'<V2'"))


rows_of_bits = hnp.arrays(np.uint16, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6))


@given(rows_of_bits)
def test_every_value_is_widened_to_itself(bits: Array) -> None:
    expected = np.array([int(b) << 16 for b in bits.ravel()], np.uint32).view(np.float32).reshape(bits.shape)
    np.testing.assert_array_equal(widened(bits.view("V2")).view(np.uint32), expected.view(np.uint32))


@given(rows_of_bits)
def test_a_vector_is_rounded_by_little_or_refused(bits: Array) -> None:
    wide = widened(bits.view("V2"))
    largest = np.abs(wide).max(axis=1)
    try:
        found = as_float16(bits.view("V2"), "a", range(len(bits)))
    except InputError:
        with np.errstate(over="ignore"):
            changed = (wide.astype(np.float16) != wide).any(axis=1)
        assert (((largest < 2.0**-14) & changed) | (np.abs(wide) > 65504).any(axis=1)).any()
        return
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wide))
    finite = np.isfinite(wide)
    np.testing.assert_array_equal(found[np.isinf(wide)], wide[np.isinf(wide)])
    error = np.abs(found - wide, where=finite, out=np.zeros_like(wide))
    assert error.max() <= HALF_STEP
    assert (error[largest < 2.0**-14] == 0).all()
    assert (error[np.abs(wide) >= 2.0**-17] == 0).all()


@given(exponent=st.integers(-17, 15), mantissa=st.integers(0, 127), negative=st.booleans())
def test_usual_values_are_kept_exactly(exponent: int, mantissa: int, negative: bool) -> None:
    value = (-1) ** negative * (1 + mantissa / 128) * 2.0**exponent
    assume(abs(value) <= 65504)
    found = as_float16(cut([[value, 1.0]]), "a", range(1))
    assert found[0].tolist() == [value, 1.0]


@pytest.mark.parametrize("save", [np.save, save_as_ml_dtypes_does], ids=["|V2", "<V2"])
def test_npy_files_are_read_in_order_and_at_random(tmp_path: Path, save: Any) -> None:
    vectors = cut(make("float32"))
    save(tmp_path / "a.npy", vectors)
    expected = widened(vectors).astype(np.float16)
    check_source(open_source(tmp_path / "a.npy"), expected, 8, [56, 0, 3, 3, 19])
    np.testing.assert_array_equal(read_queries(tmp_path / "a.npy"), expected)


def test_hdf5_and_arrays_are_read_too(tmp_path: Path) -> None:
    vectors = cut(make("float32"))
    expected = widened(vectors).astype(np.float16)
    write_hdf5(tmp_path / "a.h5", vectors)
    check_source(open_source(tmp_path / "a.h5"), expected, 8, [56, 0, 3])
    check_source(array_source(np.asfortranarray(vectors)), expected, 6, [5, 0, 0])


def test_float16_and_bfloat16_files_make_one_source(tmp_path: Path) -> None:
    half, brain = make("float16"), cut(make("float32", seed=1))
    np.save(tmp_path / "a.npy", half)
    np.save(tmp_path / "b.npy", brain)
    expected = np.concatenate([half, widened(brain).astype(np.float16)])
    check_source(open_source(tmp_path), expected, 10, [0, 113, 57])


def test_arrays_and_files_of_ml_dtypes_are_bfloat16(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    vectors = make("float32").astype(ml_dtypes.bfloat16)
    expected = vectors.astype(np.float16)
    check_source(array_source(vectors), expected, 6, [5, 0, 0])
    np.save(tmp_path / "a.npy", vectors)
    check_source(open_source(tmp_path / "a.npy"), expected, 8, [56, 0, 3])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_component_that_is_not_finite_names_file_and_row(tmp_path: Path, value: float) -> None:
    vectors = make("float32", 9, 3)
    vectors[6, 2] = value
    np.save(tmp_path / "a.npy", cut(vectors))
    first, second, third = open_source(tmp_path / "a.npy").batches(4)
    check_batch(first, "l2")
    with pytest.raises(InputError, match=rf"a\.npy: row 6: component 2 is {value}; expected a finite number"):
        check_batch(second, "l2")
    check_batch(third, "l2")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            [1, 2.0**16, 0],
            r"component 1 is 65536\.0, which overflows float16.*expected at most 65504.*float32",
        ),
        ([0, 0, -3e38], r"component 2 is -2\.9\d*e\+38, which overflows float16"),
        (
            [2.0**-15, 1e-8, 0],
            r"component 1 is 9\.\d*e-09, which is rounded to 0\.0 .*at least 6\.1e-05",
        ),
    ],
)
def test_values_beyond_float16_name_file_row_and_component(tmp_path: Path, row: Any, message: str) -> None:
    vectors = make("float32", 9, 3)
    vectors[6] = row
    np.save(tmp_path / "a.npy", cut(vectors))
    source = open_source(tmp_path / "a.npy")
    with pytest.raises(InputError, match=rf"a\.npy: row 6: {message}"):
        list(source.batches(4))
    with pytest.raises(InputError, match=rf"a\.npy: row 6: {message}"):
        source.read(np.array([8, 6]))
    source.read(np.array([8, 7]))


def test_a_truncated_file_shows_its_arithmetic(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", cut(make("float32", 9, 3)))
    whole = (tmp_path / "a.npy").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "a.npy").write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"a\.npy"):
            open_source(tmp_path / "a.npy")
    (tmp_path / "a.npy").write_bytes(whole[:-1])
    with pytest.raises(InputError, match=r"expected 128 \+ 9 x 3 x 2 = 182 bytes; got 181"):
        open_source(tmp_path / "a.npy")


def test_other_types_without_a_name_are_refused() -> None:
    for kind in ("V1", "V4", [("a", "u1"), ("b", "u1")]):
        with pytest.raises(InputError, match=r"<array>: vectors of type"):
            array_source(np.zeros((2, 3), kind))
