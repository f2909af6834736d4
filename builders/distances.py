"""Conversions of vectors to what the distance kernels take, and kernels for timing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.reader.kernels import squared_distances


@kernel
def distances_from_first(vectors: Any, ids: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write |vectors[0] - vectors[ids[i]]|^2 to ``out[i]``: the kernel as a build calls it, for timing."""
    squared_distances(vectors, 0, vectors, ids, ids.size, out)


@kernel
def read_anywhere(memory: Any, reads: int) -> Any:  # pragma: no cover - compiled
    """Read so many bytes of `memory`, uint8 (a power of two,), one after the other: what is read decides the next."""
    at, mask = np.uint64(1), np.uint64(memory.size - 1)
    for _ in range(reads):
        value = np.uint64(memory[(at >> np.uint64(32)) & mask])
        at = at * np.uint64(6364136223846793005) + np.uint64(1442695040888963407) + value
    return at


def as_bits(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return `vectors` for compiled code; float16 as a view of its bits, uint16, since numba has no float16 on CPUs."""
    return vectors.view(np.uint16) if vectors.dtype == np.float16 else vectors


def comparable(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return `vectors` as uint8 or float32 rows with the same Euclidean distances.

    For code that computes with single components; distance kernels take every type.

    Parameters
    ----------
    vectors : float32, float16, uint8 or int8 array, shape (n_vectors, dim)

    Returns
    -------
    uint8 or float32 array, shape (n_vectors, dim), C-contiguous
        int8 values are shifted by 128 into uint8, which changes no difference between two of them; float16 is widened.
        float32 and uint8 are returned without a copy.
    """
    if vectors.dtype == np.int8:
        return np.ascontiguousarray(vectors).view(np.uint8) ^ np.uint8(0x80)
    if vectors.dtype == np.float16:
        return vectors.astype(np.float32)
    return np.ascontiguousarray(vectors)
