"""Conversion of a caller's order for the native reader."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexmill.formats.errors import InputError


def as_order(order: ArrayLike, n: int) -> NDArray[np.uint32]:
    """Convert an order of `n` slots to a C-contiguous uint32 array; repetitions are not checked.

    Raises
    ------
    InputError
        If it is not a 1-D array of integers, or one of them is out of range.
    """
    array = np.asarray(order)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"order: expected {n} slots, got {array.dtype} of shape {array.shape}; pass a permutation of the slots"
            f" 0..{n - 1}"
        )
    wrong = np.flatnonzero((array < 0) | (array >= n))
    if len(wrong):
        raise InputError(
            f"order: position {wrong[0]}: expected a slot below {n}, got {array[wrong[0]]}; pass a permutation of"
            f" the slots 0..{n - 1}"
        )
    return np.ascontiguousarray(array, np.uint32)
