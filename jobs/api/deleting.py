"""Ids to delete, from a file or from memory: shared by `indexmill delete` and `indexmill.delete`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


def given_ids(ids: Any, column: str | None = None) -> tuple[pa.Array, bool]:
    """Return ids, int64, uint64, string or binary, and whether they are from a text, where strings may be numbers.

    Parameters
    ----------
    ids : path, or sequence of int, str or bytes
    column : str, optional
        Column of a Parquet or Arrow file; by default the only one.

    Raises
    ------
    InputError
        If the file cannot be read, or they are no ids.
    """
    import pyarrow as pa

    from indexmill.formats.sources.ids import TEXT_SUFFIX, as_ids, read_id_file
    from indexmill.formats.sources.source import ARRAY_NAME

    if isinstance(ids, (str, os.PathLike)):
        found, _ = read_id_file(os.fspath(ids), column)
        return found, Path(ids).suffix == TEXT_SUFFIX
    try:
        array = ids if isinstance(ids, (pa.Array, pa.ChunkedArray)) else pa.array(ids)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if pa.types.is_null(array.type):
            array = array.cast(pa.int64())  # an empty list has no type
        return as_ids(array, ARRAY_NAME)[0], False
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"{ARRAY_NAME}: ids: {error}; expected integers, strings or bytes of one type"
        ) from error
