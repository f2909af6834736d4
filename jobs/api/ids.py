"""Ids that a caller gives, as a file or in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import InputError
from indexmill.formats.location import local_path

if TYPE_CHECKING:
    import pyarrow as pa


def given_ids(
    ids: Any, column: str | None, read: Callable[[str, str | None], tuple[pa.Array, str]]
) -> tuple[pa.Array, str]:
    """Return ids, int64, uint64, string or binary, and the name of their type.

    Parameters
    ----------
    ids : path, or sequence of int, str or bytes
    column : str, optional
        Column of a Parquet or Arrow file; by default the only one.
    read : callable
        Reads a file; as `formats.sources.ids.read_id_file`.

    Raises
    ------
    ConfigError
        If the path is a URL.
    InputError
        If the file cannot be read, or they are no ids.
    """
    import pyarrow as pa

    from indexmill.formats.sources.ids import as_ids
    from indexmill.formats.sources.source import ARRAY_NAME

    if isinstance(ids, (str, os.PathLike)):
        return read(local_path(ids, "ids"), column)
    try:
        array = ids if isinstance(ids, (pa.Array, pa.ChunkedArray)) else pa.array(ids)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if pa.types.is_null(array.type):
            array = array.cast(pa.int64())  # an empty list has no type
        return as_ids(array, ARRAY_NAME)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"{ARRAY_NAME}: ids: {error}; expected integers, strings or bytes of one type"
        ) from error
