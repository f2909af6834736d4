"""bfloat16 vectors, which are read as float16: as many bytes, and a type that builds and indexes have.

numpy has no bfloat16. The package ml_dtypes, which JAX uses, adds it. `numpy.save` writes its arrays as two bytes
without a type (``<V2``), and `numpy.load` returns them so. Both are taken for bfloat16.

float16 has three more bits of precision than bfloat16, and a smaller range. Components from 2^-17 to 65,280 are kept
exactly. Smaller ones are rounded to a multiple of 2^-24, by at most 2^-25. In a vector with a component of 2^-14 or
more that is at most a quarter of what bfloat16 itself rounds off this component; other vectors must be exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError

_MOST = float(np.finfo(np.float16).max)
#: Magnitude of a vector's largest component from which on components may be rounded.
_LEAST = float(np.finfo(np.float16).smallest_normal)


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype` is bfloat16: that of ml_dtypes, or two bytes without a type."""
    return dtype.name == "bfloat16" or dtype == np.dtype("V2")


def widened(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return bfloat16 values as float32, which holds all of them."""
    bits = np.left_shift(values.view(np.uint16), 16, dtype=np.uint32)
    return bits.view(np.float32)


def numeric(queries: NDArray[Any]) -> NDArray[Any]:
    """Return an array of queries with bfloat16 widened to float32: queries are few, and take the type of an index."""
    return widened(queries) if is_bfloat16(queries.dtype) else queries


def as_float16(
    values: NDArray[Any], name: str, rows: Sequence[int] | NDArray[np.int64]
) -> NDArray[np.float16]:
    """Return bfloat16 vectors as float16.

    Parameters
    ----------
    values : bfloat16 array, shape (m, dim)
    name : str
        Of the file, for errors.
    rows : sequence of int, length m
        Row of each vector in the file, for errors.

    Returns
    -------
    float16 array, shape (m, dim), C-contiguous
        NaN and infinity stay what they are.

    Raises
    ------
    InputError
        If a component overflows float16, or all components of a vector are small and some are rounded; the message
        names file, row and component.
    """
    wide = widened(values)
    with np.errstate(over="ignore", under="ignore"):
        out = np.ascontiguousarray(wide, dtype=np.float16)
    lost = np.isinf(out) & np.isfinite(wide)
    if lost.any():
        row, component = np.argwhere(lost)[0]
        raise InputError(
            f"{name}: row {rows[row]}: component {component} is {wide[row, component]!s}, which overflows float16, as "
            f"which bfloat16 is read; expected at most {_MOST:g} in magnitude; scale the vectors or convert them to "
            "float32"
        )
    small = np.abs(wide).max(axis=1, keepdims=True) < _LEAST  # false for NaN
    lost = small & (out != wide)
    if lost.any():
        row, component = np.argwhere(lost)[0]
        raise InputError(
            f"{name}: row {rows[row]}: component {component} is {wide[row, component]!s}, which is rounded to "
            f"{out[row, component]!s} in float16, as which bfloat16 is read; expected a component of at least "
            f"{_LEAST:.3g} in magnitude; scale the vectors or convert them to float32"
        )
    return out
