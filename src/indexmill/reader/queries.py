"""Conversion of a caller's queries, numpy or Arrow, for the native reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.bfloat16 import numeric

if TYPE_CHECKING:
    import pyarrow as pa


def as_queries(queries: ArrayLike, want: np.dtype[Any], dim: int) -> NDArray[Any]:
    """Convert queries to a C-contiguous, aligned array of type `want`, shape (n_queries, dim); one query may be 1-D.

    Parameters
    ----------
    queries : array-like
        A numpy array, an object with ``__array__``, or an Arrow array or column of lists.

    Raises
    ------
    InputError
        If they are not numbers, have nulls, or are not whole numbers in the range of an integer type `want`.
    """
    array = numeric(np.atleast_2d(_to_numpy(queries, dim)))
    if array.dtype.kind not in "fiu":
        raise InputError(
            f"queries: dtype {array.dtype} is not numeric; pass {want} vectors of {dim} dimensions"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # wrong values are refused below or by the reader
        cast = array.astype(want, order="C", copy=False)
    if want.kind in "iu" and array.dtype != want and not np.array_equal(cast, array):
        raise InputError(
            f"queries: values do not fit the index's {want}; "
            f"round them to {np.iinfo(want).min}..{np.iinfo(want).max}"
        )
    return np.require(cast, requirements=("C", "A"))


def _to_numpy(queries: Any, dim: int) -> NDArray[Any]:
    """Convert Arrow lists to a 2-D array, which numpy would convert to an array of objects."""
    is_arrow = hasattr(queries, "__arrow_c_array__") or hasattr(queries, "__arrow_c_stream__")
    if not is_arrow:
        try:
            return np.asarray(queries)
        except ValueError as error:
            raise InputError(f"queries: {error}; pass rows of {dim} numbers each") from None
    import pyarrow as pa

    if isinstance(queries, (pa.Table, pa.RecordBatch)):
        raise InputError(
            f"queries: expected one column of vectors, got a table of {queries.column_names}; pass one of its"
            ' columns, as table["vector"]'
        )
    if hasattr(queries, "columns"):  # a data frame
        return np.asarray(queries)
    lists = pa.chunked_array(queries)
    kind = lists.type.storage_type if isinstance(lists.type, pa.BaseExtensionType) else lists.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return np.asarray(queries)
    return _lists_to_numpy(lists, kind, dim)


def _lists_to_numpy(lists: pa.ChunkedArray, kind: pa.DataType, dim: int) -> NDArray[Any]:
    """Return an array, shape (len(lists), dim); a fixed list size is kept, and checked by the reader."""
    import pyarrow as pa

    from indexmill.formats.sources.arrow_columns import decode_vectors

    element = kind.value_type
    if not (pa.types.is_integer(element) or pa.types.is_floating(element)):
        raise InputError(f"queries: {kind} is not numeric; pass lists of {dim} numbers")
    dtype = np.dtype(element.to_pandas_dtype())
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else dim
    parts, first = [np.empty((0, size), dtype)], 0
    for chunk in lists.chunks:
        rows = range(first, first + len(chunk))
        parts.append(decode_vectors(chunk, size, dtype, "queries", rows))
        first += len(chunk)
    return np.concatenate(parts)
