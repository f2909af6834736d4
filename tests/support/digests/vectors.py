"""Vectors, user ids and metadata of the cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

N, DIM = 1200, 20


def rows(
    n: int = N, dtype: str = "float32", *, dim: int = DIM, seed: int = 1, apart: float = 3.0
) -> NDArray[Any]:
    """Return clustered vectors, shape (n, dim), floats of different lengths, from the same clusters for every seed."""
    centres = np.random.default_rng(99).normal(size=(24, dim)) * apart
    rng = np.random.default_rng(seed)
    found = centres[rng.integers(24, size=n)] + rng.normal(size=(n, dim))
    if dtype in ("uint8", "int8"):
        info = np.iinfo(dtype)
        middle = (info.max + info.min + 1) // 2
        return np.clip(np.rint(found * 12 + middle), info.min, info.max).astype(dtype)
    return (found * rng.uniform(0.5, 2, size=(n, 1))).astype(dtype)


def within(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return shorter vectors: nodes of codes, and inner products, take none longer than those that were built."""
    return (vectors * 0.8).astype(vectors.dtype)


def names(n: int, first: int = 0) -> list[str]:
    """Return user ids that are strings, some with letters of two bytes."""
    return [f"item-{'é' * (i % 3)}{i}" for i in range(first, first + n)]


def colours(n: int) -> pa.Table:
    """Return two metadata columns, one with nulls."""
    return pa.table({"score": np.arange(n) / 2, "colour": [("red", "green", None)[i % 3] for i in range(n)]})
