"""User ids for an imported index without ids, from a file with one id for each vector, in their order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.formats.errors import InputError
from indexmill.formats.imports.diskann_bin import open_bin
from indexmill.formats.sources.arrow_columns import cast_ids, id_type_of

_SUFFIXES = ".npy, .parquet or .tags"


def read_id_file(path: str | Path, column: str | None = None) -> tuple[pa.Array, str]:
    """Read ids from a .npy file, a column of a Parquet file, or the .tags file of DiskANN and PipeANN.

    Parameters
    ----------
    column : str, optional
        Column of a Parquet file; by default the only column.

    Returns
    -------
    ids : pyarrow.Array
        int64, uint64, string or binary, without nulls.
    id_type : str

    Raises
    ------
    InputError
        If the file cannot be read, or has no ids.
    CorruptFile
        If it is a damaged .tags file.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected user ids: {_SUFFIXES}")
    try:
        if path.suffix == ".npy":
            found = pa.array(np.load(path, mmap_mode="r", allow_pickle=False))
        elif path.suffix == ".parquet":
            found = _column(path, column)
        elif path.suffix == ".tags":
            found = pa.array(open_bin(path, "<u4", "tags").ravel())
        else:
            raise InputError(f"{path}: a file of unknown type; expected user ids: {_SUFFIXES}")
    except (pa.ArrowException, ValueError, TypeError, EOFError) as error:
        raise InputError(
            f"{path}: {str(error).splitlines()[0]}; expected one id a vector: integers, strings or bytes"
        ) from error
    return as_ids(found, str(path))


def as_ids(found: pa.Array, name: str) -> tuple[pa.Array, str]:
    """Return ids in the type of ids.imx, and its name; raises errors as `read_id_file`."""
    id_type = id_type_of(found.type, name)
    return cast_ids(found, id_type, name, 0), id_type


def _column(path: Path, column: str | None) -> pa.Array:
    file = pq.ParquetFile(path)
    names = file.schema_arrow.names
    if column is None and len(names) != 1:
        raise InputError(f"{path}: {len(names)} columns; name the one that holds the ids with --id-column")
    wanted = names[0] if column is None else column
    if wanted not in names:
        raise InputError(f"{path}: no column {wanted!r}; columns are {', '.join(names)}")
    return file.read([wanted]).column(0).combine_chunks()
