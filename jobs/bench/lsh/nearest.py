"""The k nearest candidates so far, and distances to them: what both baselines of the benchmark of LSH share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload

from indexmill.formats.kernel import kernel


def squared_distance(a: Any, b: Any) -> Any:
    """Return the squared distance of two vectors, shape (dim,): uint8 in int32, float32 in float32; by SIMD."""
    wide = np.int32 if a.dtype == np.uint8 else np.float32
    differences = a.astype(wide) - b.astype(wide)
    return np.float32((differences * differences).sum())


@kernel
def _of_bytes(a: Any, b: Any) -> Any:
    total = np.int32(0)
    for j in range(len(a)):
        difference = np.int32(np.int16(a[j]) - np.int16(b[j]))
        total += np.int32(difference * difference)
    return np.float32(total)


@kernel(fastmath={"reassoc", "contract"})
def _of_floats(a: Any, b: Any) -> Any:
    total = np.float32(0)
    for j in range(len(a)):
        difference = a[j] - b[j]
        total += difference * difference
    return total


@overload(squared_distance, strict=False)
def _squared_distance(a: Any, b: Any) -> Any:
    """Choose by the type of the vectors when a kernel is compiled."""
    kernel = _of_bytes if str(a.dtype) == "uint8" else _of_floats

    def chosen(a: Any, b: Any) -> Any:
        return kernel(a, b)

    return chosen


@kernel
def insert(distances: Any, rows: Any, distance: float, row: int) -> None:
    """Put a candidate among the k nearest, which ascend and are full of infinity at first; ties keep the earlier."""
    if not distance < distances[-1]:
        return
    at = len(distances) - 1
    while at and distances[at - 1] > distance:
        distances[at], rows[at] = distances[at - 1], rows[at - 1]
        at -= 1
    distances[at], rows[at] = distance, row
