"""Squared Euclidean distances for the numba kernels of this folder, computed by the native reader's SIMD code.

Compiled numba code calls the C functions directly. Each kernel exists for uint8 and float32 rows; which one
is called is decided by the array's type when numba compiles the caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

from indexmill.reader.kernels import l2_gather_f32, l2_gather_u8


def squared_distances(
    queries: NDArray[Any], q: Any, vectors: NDArray[Any], ids: Any, m: Any, out: Any
) -> None:
    """Write |queries[q] - vectors[ids[i]]|^2 to ``out[i]`` for i below `m`; callable from numba code only.

    Parameters
    ----------
    queries, vectors : uint8 or float32 arrays, shape (any, dim), C-contiguous, of one type
    q : int
        Row of `queries` to measure from.
    ids : uint32 array, shape (at least m,)
        Rows of `vectors` to measure to.
    out : float32 array, shape (at least m,)
    """
    raise TypeError("squared_distances is called from compiled code; use builders.exact from Python")


@overload(squared_distances)
def _squared_distances(queries: Any, q: Any, vectors: Any, ids: Any, m: Any, out: Any) -> Any:
    if vectors.dtype == types.uint8:

        def u8(queries: Any, q: Any, vectors: Any, ids: Any, m: Any, out: Any) -> None:
            dim = vectors.shape[1]
            query = queries.ctypes.data + q * dim
            l2_gather_u8(query, vectors.ctypes.data, dim, ids.ctypes.data, m, out.ctypes.data)

        return u8
    if vectors.dtype == types.float32:

        def f32(queries: Any, q: Any, vectors: Any, ids: Any, m: Any, out: Any) -> None:
            dim = vectors.shape[1]
            query = queries.ctypes.data + q * dim * 4
            l2_gather_f32(query, vectors.ctypes.data, dim, ids.ctypes.data, m, out.ctypes.data)

        return f32
    return None


@njit(nogil=True, cache=True)
def distances_from_first(vectors: Any, ids: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write |vectors[0] - vectors[ids[i]]|^2 to ``out[i]``: the kernel as a build calls it, to be timed."""
    squared_distances(vectors, 0, vectors, ids, ids.size, out)


def comparable(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return `vectors` as uint8 or float32 rows with the same Euclidean distances.

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
