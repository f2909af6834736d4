"""Vectors as the distance kernels take them, and a distance kernel to be timed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.reader.kernels import squared_distances


@njit(nogil=True, cache=True)
def distances_from_first(vectors: Any, ids: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write |vectors[0] - vectors[ids[i]]|^2 to ``out[i]``: the kernel as a build calls it, to be timed."""
    squared_distances(vectors, 0, vectors, ids, ids.size, out)


def as_bits(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return vectors as compiled code takes them: float16 seen as its bits, uint16, for numba knows none on a CPU."""
    return vectors.view(np.uint16) if vectors.dtype == np.float16 else vectors


def comparable(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return `vectors` as uint8 or float32 rows with the same Euclidean distances.

    This is for what computes with components; kernels of distances take every type.

    Parameters
    ----------
    vectors : float32, float16, uint8 or int8 array, shape (n_vectors, dim)

    Returns
    -------
    uint8 or float32 array, shape (n_vectors, dim), C-contiguous
        int8 is shifted by 128 into uint8, which changes no difference; float16 is widened. float32 and uint8
        come back as they are, without a copy.
    """
    if vectors.dtype == np.int8:
        return np.ascontiguousarray(vectors).view(np.uint8) ^ np.uint8(0x80)
    if vectors.dtype == np.float16:
        return vectors.astype(np.float32)
    return np.ascontiguousarray(vectors)
