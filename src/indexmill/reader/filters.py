"""Conversion of a caller's filter, a boolean for each vector or vector ids, to a mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexmill.formats.errors import InputError


@dataclass(frozen=True)
class Allowed:
    """Vectors that a search may return.

    Attributes
    ----------
    mask : bool array, shape (n_vectors,)
    is_label : bool
        Whether they are the vectors of one label, within which edges of the index lead.
    """

    mask: NDArray[np.bool_]
    is_label: bool = False


def as_mask(allow: ArrayLike, n: int) -> NDArray[np.bool_]:
    """Return whether each of `n` vectors is allowed: bool array, shape (n,).

    Parameters
    ----------
    allow : bool array of shape (n,), or array of vector ids in any order

    Raises
    ------
    InputError
        If the array has another shape or type, or an id is out of range.
    """
    try:
        array = np.asarray(allow)
    except ValueError as error:
        raise InputError(f"allow: {error}; pass {n} booleans or a list of vector ids") from None
    if array.shape == (0,) and array.dtype.kind == "f":
        array = array.astype(np.int64)  # an empty list, which numpy converts to floats
    if array.ndim != 1 or array.dtype.kind not in "biu" or (array.dtype.kind == "b" and len(array) != n):
        raise InputError(
            f"allow: expected {n} booleans or an array of vector ids, got {array.dtype} of shape "
            f"{array.shape}; pass one boolean a vector, or whole numbers"
        )
    if array.dtype.kind == "b":
        return array
    wrong = array[(array < 0) | (array >= n)]
    if len(wrong):
        raise InputError(f"allow: expected vector ids 0..{n - 1}, got {wrong[0]}; leave it out")
    mask = np.zeros(n, dtype=np.bool_)
    mask[array] = True
    return mask
