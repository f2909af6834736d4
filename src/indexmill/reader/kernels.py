"""The reader's distance kernels as C functions that numba code calls directly.

Each name below is callable inside ``numba.njit`` functions, also with ``cache=True``: the cached machine code
looks the symbols up again in a fresh process, and importing this module puts them there first. Arguments are
addresses (``array.ctypes.data``) and int64 counts; nothing is checked, so the caller passes C-contiguous
arrays of the right dtype and ids below the number of rows.

=================  ====================================================================================
``l2_u8``          ``(a, b, dim) -> float32``: squared Euclidean distance of two uint8 vectors, exact
``l2_f32``         ``(a, b, dim) -> float32``: the same for float32 vectors
``l2_gather_u8``   ``(query, base, dim, ids, n_ids, out)``: ``out[i] = |query - base[ids[i]]|^2``;
                   uint8 query (dim,) and base (n, dim), uint32 ids (n_ids,), float32 out (n_ids,)
``l2_gather_f32``  the same for float32 query and base
``nearest_u8``     ``(vectors, dim, rows, n_rows, panels, offsets, ids, n_panels, fanout, scores, found)``: merges
                   points into the lists of the nearest of some rows; see `builders.panels` for the arrays
``scores_u8``      ``(vectors, dim, rows, n_rows, panels, offsets, n_panels, out)``: all scores of some rows
=================  ====================================================================================

Every distance has the same bits whatever the instruction set of the machine. The gather forms prefetch rows
some ids ahead, which is what counts when ``base`` is far larger than the caches.

Examples
--------
>>> @numba.njit(cache=True)
... def distances(query, base, ids, out):
...     kernels.l2_gather_u8(
...         query.ctypes.data, base.ctypes.data, base.shape[1], ids.ctypes.data, ids.size, out.ctypes.data
...     )

An address may be computed, too: row ``i`` of a uint8 matrix is at ``base.ctypes.data + i * base.shape[1]``.
"""

from typing import Any

import llvmlite.binding
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from indexmill.reader import _native

__all__ = ["l2_f32", "l2_gather_f32", "l2_gather_u8", "l2_u8", "nearest_u8", "scores_u8", "squared_distances"]

# Makes the extension module's C symbols known to LLVM for the life of the process.
llvmlite.binding.load_library_permanently(_native.__file__)

_PAIR = types.float32(types.intp, types.intp, types.int64)
_GATHER = types.void(types.intp, types.intp, types.int64, types.intp, types.int64, types.intp)
_ROWS = (types.intp, types.int64, types.intp, types.int64)
_NEAREST = types.void(
    *_ROWS, types.intp, types.intp, types.intp, types.int64, types.int64, types.intp, types.intp
)
_SCORES = types.void(*_ROWS, types.intp, types.intp, types.int64, types.intp)

l2_u8: Any = types.ExternalFunction("im_l2_u8", _PAIR)
l2_f32: Any = types.ExternalFunction("im_l2_f32", _PAIR)
l2_gather_u8: Any = types.ExternalFunction("im_l2_gather_u8", _GATHER)
l2_gather_f32: Any = types.ExternalFunction("im_l2_gather_f32", _GATHER)
nearest_u8: Any = types.ExternalFunction("im_nearest_u8", _NEAREST)
scores_u8: Any = types.ExternalFunction("im_scores_u8", _SCORES)


def squared_distances(
    queries: NDArray[Any], q: Any, vectors: NDArray[Any], ids: Any, m: Any, out: Any
) -> None:
    """Write |queries[q] - vectors[ids[i]]|^2 to ``out[i]`` for i below `m`; callable from numba code only.

    uint8 and float32 rows have a kernel each; the type of the arrays decides when numba compiles the caller.

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
