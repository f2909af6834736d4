"""Checks of the values of vectors and ids, in files that are readable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.formats.errors import InputError
from indexmill.formats.sources.joined import VectorBatch

#: Largest squared norm: the squared distance of two such vectors still fits float32.
_LARGEST_SQUARED_NORM = float(np.finfo(np.float32).max) / 4


def check_batch(batch: VectorBatch, metric: str) -> None:
    """Check that distances can be computed for all vectors.

    One pass computes the squared norms; components are checked only for suspicious ones.

    Parameters
    ----------
    batch : VectorBatch
    metric : {"l2", "ip", "cosine"}
        Cosine does not allow zero vectors, which have no direction.

    Raises
    ------
    InputError
        On the first row with a NaN or infinite component, with a squared norm too large for float32 distances, or with
        only zeros under cosine; the message names file, row and component.
    """
    vectors = batch.vectors
    if vectors.dtype.kind == "f":
        wide = vectors if vectors.dtype == np.float32 else vectors.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            squared_norms = np.einsum("ij,ij->i", wide, wide)
            usable = squared_norms <= _LARGEST_SQUARED_NORM  # false for NaN too
        if not usable.all():
            _refuse_row(batch, int(np.argmin(usable)))
        suspicious = squared_norms == 0  # or so small that the square underflows
    elif metric == "cosine":
        suspicious = ~vectors.any(axis=1)
    if metric == "cosine" and suspicious.any():
        rows = np.flatnonzero(suspicious)
        zero = rows[~vectors[rows].any(axis=1)]
        if len(zero):
            raise InputError(
                f"{batch.path}: row {batch.first_row + int(zero[0])}: zero vector; expected a direction, which "
                "metric cosine needs; remove the row or use metric l2"
            )


def _refuse_row(batch: VectorBatch, i: int) -> None:
    vector, where = batch.vectors[i], f"{batch.path}: row {batch.first_row + i}"
    odd = np.flatnonzero(~np.isfinite(vector))
    if len(odd):
        raise InputError(
            f"{where}: component {odd[0]} is {vector[odd[0]]!s}; expected a finite number; remove or fix the "
            "row"
        )
    length = float(np.linalg.norm(vector.astype(np.float64)))
    raise InputError(
        f"{where}: length {length:.3g}; expected at most {_LARGEST_SQUARED_NORM**0.5:.3g}, beyond which squared "
        "distances overflow float32; scale the vectors"
    )


def check_unique_ids(ids: pa.Array | pa.ChunkedArray, origins: Sequence[tuple[int, str, int]]) -> None:
    """Check that user ids are unique.

    Parameters
    ----------
    ids : pyarrow.Array or ChunkedArray, shape (n_vectors,)
        In vector-id order, without nulls.
    origins : sequence of (start, path, first_row)
        Origin of each range of ids (see `VectorBatch`), by increasing start from 0.

    Raises
    ------
    InputError
        On the first repeated id; the message names it and both rows.
    """
    if pa.types.is_string(ids.type) or pa.types.is_binary(ids.type):
        large = pa.large_string() if pa.types.is_string(ids.type) else pa.large_binary()
        ids = ids.cast(large)  # distinct values may exceed the 2 GiB of 32-bit offsets
    if pc.count_distinct(ids).as_py() == len(ids):
        return
    array = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    codes = array.dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    repeated = order[1:][codes[order[1:]] == codes[order[:-1]]]
    second = int(repeated.min())
    first = int(np.argmax(codes == codes[second]))
    raise InputError(
        repeated_id(array[second].as_py(), origin_of(first, origins), origin_of(second, origins))
    )


def repeated_id(user_id: object, one: str, other: str) -> str:
    """Return the message that refuses an id which the vectors at two places have."""
    return (
        f"id {user_id!r} is not unique: {one} and {other}; expected one vector for each id; remove one or choose "
        "another id column"
    )


def origin_of(vector_id: int, origins: Sequence[tuple[int, str, int]]) -> str:
    """Return the path and row that a vector comes from; `origins`: as in `check_unique_ids`."""
    start, path, first_row = max((o for o in origins if o[0] <= vector_id), key=lambda o: o[0])
    return f"{path} row {first_row + vector_id - start}"
