"""The reader's distance kernels as C functions that numba code calls directly.

Each name below is callable inside ``numba.njit`` functions, also with ``cache=True``: the cached machine code
looks the symbols up again in a fresh process, and importing this module puts them there first. Arguments are
addresses (``array.ctypes.data``) and int64 counts; nothing is checked, so the caller passes C-contiguous
arrays of the right dtype and ids below the number of rows.

=====================  =================================================================================
``l2_gather_f32``      ``(query, base, dim, ids, n_ids, out)``: ``out[i] = |query - base[ids[i]]|^2``; float32 query
                       (dim,) and base (n, dim), uint32 ids (n_ids,), float32 out (n_ids,)
``l2_gather_f16``      the same for float16 query and base, widened to float32; numba has no float16 on CPUs, so
                       they are views as uint16
``l2_gather_u8``       the same for uint8
``l2_gather_i8``       the same for int8
``ip_gather_f32``      inner products, with the same arguments; likewise ``_f16``, ``_u8``, ``_i8``
``code_distances``     ``(table, n_chunks, codes, ids, n_ids, out)``: ``out[i]`` is the sum over chunks j of
                       ``table[j, codes[ids[i], j]]``, added in order; float32 table (n_chunks, 256), uint8 codes
                       (n, n_chunks)
``widen_f16``          ``(codes, dim, out)``: float16 components, as uint16, to float32
``nearest_u8``         ``(vectors, dim, rows, n_rows, panels, offsets, ids, n_panels, fanout, scores, found)``: merges
                       points into the lists of the nearest of some rows; see `builders.nearest.panels` for the arrays
``scores_u8``          ``(vectors, dim, rows, n_rows, panels, offsets, n_panels, out)``: all scores of some rows
``least_scores``       ``(scores, n_rows, width, k, places)``: places of the k least of each row of scores, ties by the
                       smaller place; 0xFFFFFFFF fills up, as for scores of 0x7FFFFFFF; `width` is a multiple of 16
``nearest_centres``    ``(rows, dim, n_rows, pivots, n_centres, bounds, n_chunks, labels)``: the nearest centre of each
                       row's chunks, see `builders.quantize.pq.label_rows`; float32 rows (n_rows, dim) and pivots
                       (n_centres, dim), int64 bounds (n_chunks + 1,), uint8 labels (n_rows, n_chunks)
``sort_pairs``         ``(ids, distances, n) -> int64``: sorts uint32 ids and float32 distances by (distance, id),
                       drops repeated pairs, returns how many are left
``prune_f32``          ``(vectors, dim, ids, distances, n, max_degree, alpha, saturate, out) -> int64``: robust prune,
                       see `builders.vamana.prune`; likewise ``_f16``, ``_u8``, ``_i8``
=====================  =================================================================================

Every distance has the same bits with every instruction set. Distances of integers are exact up to the last rounding to
float32, which changes nothing below 2^24. Distances of floats are sums in a fixed order: component i is added to lane
i % 32 by a fused multiply-add, and lanes are added by halves. So a component is rounded c = ceil(dim / 32) + 6 times, a
sum of terms t has an error of at most ``c * 2^-24 * sum(|t|)``, and a difference adds two roundings to a term.

The gather kernels prefetch rows some ids ahead, which matters most when ``base`` is far larger than the caches.

Examples
--------
>>> @numba.njit(cache=True)
... def distances(query, base, ids, out):
...     kernels.l2_gather_u8(
...         query.ctypes.data, base.ctypes.data, base.shape[1], ids.ctypes.data, ids.size, out.ctypes.data
...     )

An address may be computed, too: row ``i`` of a uint8 matrix is at ``base.ctypes.data + i * base.shape[1]``.
"""

import socket
import warnings
from contextlib import suppress
from typing import Any

import llvmlite.binding
import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from indexmill.reader import _native

__all__ = [
    "address",
    "code_distances",
    "float_row",
    "inner_products",
    "ip_gather_f16",
    "ip_gather_f32",
    "ip_gather_i8",
    "ip_gather_u8",
    "l2_gather_f16",
    "l2_gather_f32",
    "l2_gather_i8",
    "l2_gather_u8",
    "least_scores",
    "nearest_centres",
    "nearest_u8",
    "prune_f16",
    "prune_f32",
    "prune_i8",
    "prune_sorted",
    "prune_u8",
    "scores_u8",
    "sort_pairs",
    "squared_distances",
    "widen_f16",
]

# Makes the extension module's C symbols known to LLVM for the life of the process.
llvmlite.binding.load_library_permanently(_native.__file__)


def _warn_if_refused() -> None:
    """Warn of a wider unit of this processor that the system refuses, in every process that computes: once."""
    unit = _native.unit()
    if unit["note"] is not None:
        told = f"{unit['note']}; products are computed by {unit['products']}, which is slower"
        with suppress(UserWarning):  # where warnings are errors: what is slower is none
            warnings.warn(f"{socket.gethostname()}: {told}", stacklevel=3)


_warn_if_refused()

_GATHER = types.void(types.intp, types.intp, types.int64, types.intp, types.int64, types.intp)
_CODES = types.void(types.intp, types.int64, types.intp, types.intp, types.int64, types.intp)
_ROWS = (types.intp, types.int64, types.intp, types.int64)
_NEAREST = types.void(
    *_ROWS, types.intp, types.intp, types.intp, types.int64, types.int64, types.intp, types.intp
)
_SCORES = types.void(*_ROWS, types.intp, types.intp, types.int64, types.intp)
_LEAST = types.void(types.intp, types.int64, types.int64, types.int64, types.intp)
_CENTRES = types.void(
    types.intp,
    types.int64,
    types.int64,
    types.intp,
    types.int64,
    types.intp,
    types.int64,
    types.intp,
)
_WIDEN = types.void(types.intp, types.int64, types.intp)
_SORT = types.int64(types.intp, types.intp, types.int64)
_PRUNE = types.int64(
    types.intp,
    types.int64,
    types.intp,
    types.intp,
    types.int64,
    types.int64,
    types.float32,
    types.boolean,
    types.intp,
)

l2_gather_f32: Any = types.ExternalFunction("im_l2_gather_f32", _GATHER)
l2_gather_f16: Any = types.ExternalFunction("im_l2_gather_f16", _GATHER)
l2_gather_u8: Any = types.ExternalFunction("im_l2_gather_u8", _GATHER)
l2_gather_i8: Any = types.ExternalFunction("im_l2_gather_i8", _GATHER)
ip_gather_f32: Any = types.ExternalFunction("im_ip_gather_f32", _GATHER)
ip_gather_f16: Any = types.ExternalFunction("im_ip_gather_f16", _GATHER)
ip_gather_u8: Any = types.ExternalFunction("im_ip_gather_u8", _GATHER)
ip_gather_i8: Any = types.ExternalFunction("im_ip_gather_i8", _GATHER)
code_distances: Any = types.ExternalFunction("im_code_distances", _CODES)
nearest_u8: Any = types.ExternalFunction("im_nearest_u8", _NEAREST)
scores_u8: Any = types.ExternalFunction("im_scores_u8", _SCORES)
least_scores: Any = types.ExternalFunction("im_least_scores", _LEAST)
nearest_centres: Any = types.ExternalFunction("im_nearest_centres", _CENTRES)
widen_f16: Any = types.ExternalFunction("im_widen_f16", _WIDEN)
sort_pairs: Any = types.ExternalFunction("im_sort_candidates", _SORT)
prune_f32: Any = types.ExternalFunction("im_prune_f32", _PRUNE)
prune_f16: Any = types.ExternalFunction("im_prune_f16", _PRUNE)
prune_u8: Any = types.ExternalFunction("im_prune_u8", _PRUNE)
prune_i8: Any = types.ExternalFunction("im_prune_i8", _PRUNE)


_L2 = {
    types.float32: l2_gather_f32,
    types.uint16: l2_gather_f16,
    types.uint8: l2_gather_u8,
    types.int8: l2_gather_i8,
}
_IP = {
    types.float32: ip_gather_f32,
    types.uint16: ip_gather_f16,
    types.uint8: ip_gather_u8,
    types.int8: ip_gather_i8,
}
_PRUNES = {types.float32: prune_f32, types.uint16: prune_f16, types.uint8: prune_u8, types.int8: prune_i8}


def squared_distances(
    queries: NDArray[Any], q: Any, vectors: NDArray[Any], ids: Any, m: Any, out: Any
) -> None:
    """Write |queries[q] - vectors[ids[i]]|^2 to ``out[i]`` for i below `m`; callable only from numba code.

    The type of the arrays selects the kernel when numba compiles the caller.

    Parameters
    ----------
    queries, vectors : float32, uint8, int8 or uint16 arrays, shape (any, dim), C-contiguous, of one type
        uint16 means the bits of float16.
    q : int
        Row of `queries` to measure from.
    ids : uint32 array, shape (at least m,)
        Rows of `vectors` to measure to.
    out : float32 array, shape (at least m,)
    """
    raise TypeError("squared_distances is called from compiled code; use builders.lists.exact from Python")


def inner_products(queries: NDArray[Any], q: Any, vectors: NDArray[Any], ids: Any, m: Any, out: Any) -> None:
    """Write queries[q] . vectors[ids[i]] to ``out[i]``, with the arguments of `squared_distances`."""
    raise TypeError("inner_products is called from compiled code; use numpy from Python")


def _in_rows(*arrays: Any) -> bool:
    """Return whether arrays, as types of numba, have their rows one after the other, as kernels read them."""
    return all(array.layout == "C" for array in arrays)


def address(array: Any) -> Any:
    """Return the address of a C-contiguous array, for kernels that take addresses; for numba code only.

    A caller with an array of another order does not compile.
    """
    raise TypeError("address is called from compiled code; use ndarray.ctypes from Python")


@overload(address)
def _address(array: Any) -> Any:
    def found(array: Any) -> Any:
        return array.ctypes.data

    return found if _in_rows(array) else None


def _gathering(kernel: Any) -> Any:
    def gather(queries: Any, q: Any, vectors: Any, ids: Any, m: Any, out: Any) -> None:
        dim = vectors.shape[1]
        query = queries.ctypes.data + q * dim * queries.itemsize
        kernel(query, vectors.ctypes.data, dim, ids.ctypes.data, m, out.ctypes.data)

    return gather


@overload(squared_distances)
def _squared_distances(queries: Any, q: Any, vectors: Any, ids: Any, m: Any, out: Any) -> Any:
    known = queries.dtype == vectors.dtype in _L2 and _in_rows(queries, vectors)
    return _gathering(_L2[vectors.dtype]) if known else None


@overload(inner_products)
def _inner_products(queries: Any, q: Any, vectors: Any, ids: Any, m: Any, out: Any) -> Any:
    known = queries.dtype == vectors.dtype in _IP and _in_rows(queries, vectors)
    return _gathering(_IP[vectors.dtype]) if known else None


def float_row(vectors: NDArray[Any], i: Any, space: Any) -> Any:
    """Return row `i` of `vectors` as float32 (dim,): itself, or a float16 row widened to `space`; for numba code only.

    Parameters
    ----------
    vectors : float32 or (bits of float16) uint16 array, shape (any, dim), C-contiguous
        uint8 is accepted where it is never reached.
    space : float32 array, shape (dim,)
    """
    raise TypeError("float_row is called from compiled code; use astype from Python")


@overload(float_row)
def _float_row(vectors: Any, i: Any, space: Any) -> Any:
    if not _in_rows(vectors):
        return None

    def as_it_is(vectors: Any, i: Any, space: Any) -> Any:
        return vectors[np.int64(i)]

    def widened(vectors: Any, i: Any, space: Any) -> Any:
        dim = vectors.shape[1]
        widen_f16(vectors.ctypes.data + np.int64(i) * dim * vectors.itemsize, dim, space.ctypes.data)
        return space

    return as_it_is if vectors.dtype == types.float32 else widened


def prune_sorted(
    vectors: NDArray[Any],
    ids: Any,
    distances: Any,
    n: Any,
    max_degree: Any,
    alpha: Any,
    saturate: Any,
    out: Any,
) -> int:
    """Choose neighbours by robust prune (`builders.vamana.prune`), and return their number; for numba code only.

    Parameters
    ----------
    vectors : float32, uint8, int8 or (bits of float16) uint16 array, shape (n_vectors, dim), C-contiguous
    ids, distances : uint32 and float32 arrays, shape (at least n,)
        Ascending by (distance, id).
    out : uint32 array, shape (at least max_degree,)
    """
    raise TypeError("prune_sorted is called from compiled code; use builders.vamana.prune from Python")


@overload(prune_sorted)
def _prune_sorted(
    vectors: Any, ids: Any, distances: Any, n: Any, max_degree: Any, alpha: Any, saturate: Any, out: Any
) -> Any:
    prune = _PRUNES.get(vectors.dtype)
    if prune is None or not _in_rows(vectors):
        return None

    def chosen(
        vectors: Any, ids: Any, distances: Any, n: Any, max_degree: Any, alpha: Any, saturate: Any, out: Any
    ) -> Any:
        rows, dim = vectors.ctypes.data, vectors.shape[1]
        near, far, into = ids.ctypes.data, distances.ctypes.data, out.ctypes.data
        return prune(rows, dim, near, far, n, max_degree, alpha, saturate, into)

    return chosen
