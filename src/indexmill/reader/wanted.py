"""Conversion of user ids by which a caller looks vectors up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexmill.formats.errors import InputError


def as_texts(ids: Any, kind: str) -> list[Any]:
    """Return `ids`, a list, numpy or Arrow array, as a list of str (`kind` string) or bytes (binary).

    Raises
    ------
    InputError
        If one is of another type, or `ids` is a single one.
    """
    if isinstance(ids, str | bytes):
        raise InputError(f"ids: expected several, got {ids!r}; pass a list")
    values = ids.to_pylist() if hasattr(ids, "to_pylist") else list(ids)
    wanted = str if kind == "string" else bytes
    for place, value in enumerate(values):
        if not isinstance(value, wanted):
            got = type(value).__name__
            raise InputError(
                f"ids: position {place}: expected {wanted.__name__}, got {got}; pass the index's ids"
            )
    return values


def as_integers(ids: ArrayLike, dtype: type[np.integer[Any]]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return `ids`, whole numbers, in type `dtype`, and which of them it can hold; arrays of shape (m,).

    Raises
    ------
    InputError
        If `ids` is no one-dimensional array of whole numbers.
    """
    array = np.asarray(ids)
    if array.shape == (0,):
        array = array.astype(dtype)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"ids: expected an array of whole numbers, got {array.dtype} of shape {array.shape}; pass the index's ids"
        )
    converted = array.astype(dtype)
    return converted, (array < 0) == (converted < 0)
