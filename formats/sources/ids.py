"""Ids alone, one after the other, from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from indexmill.formats.errors import InputError
from indexmill.formats.sources.arrow import IpcPieces
from indexmill.formats.sources.arrow_columns import cast_ids, id_type_of
from indexmill.formats.sources.filesystem import InputFile, reading

_TABLES = (".parquet", ".arrow", ".feather")


@dataclass(frozen=True)
class IdList:
    """Ids that a caller gives, and where they come from.

    Attributes
    ----------
    values : pyarrow Array
        int64, uint64, string or binary.
    name : str
        Their file, for messages.
    lines : int64 array, shape (len(values),), or None
        If they come from a text: the line of each, from 1 on. Such strings may stand for numbers.
    """

    values: pa.Array
    name: str
    lines: NDArray[np.int64] | None = None


def read_id_file(
    path: str | Path, column: str | None = None, more: Mapping[str, Callable[[Path], pa.Array]] | None = None
) -> tuple[pa.Array, str]:
    """Read ids from a .npy file, or a column of a Parquet or Arrow file.

    Parameters
    ----------
    column : str, optional
        Column of a Parquet or Arrow file; by default the only column.
    more : mapping of str to callable, optional
        How to read files with other suffixes.

    Returns
    -------
    ids : pyarrow.Array
        int64, uint64, string or binary, without nulls.
    id_type : str

    Raises
    ------
    InputError
        If the file cannot be read, or has no ids.
    """
    path = Path(path)
    readers: dict[str, Callable[[Path], pa.Array]] = {
        ".npy": lambda path: pa.array(np.load(path, mmap_mode="r", allow_pickle=False)),
        **dict.fromkeys(_TABLES, lambda path: _column(path, column)),
        **(more or {}),
    }
    *most, last = readers
    known = f"{', '.join(most)} or {last}"
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected ids: {known}")
    if path.suffix not in readers:
        raise InputError(f"{path}: a file of unknown type; expected ids: {known}")
    with reading(str(path), "one id a vector: integers, strings or bytes", ValueError, TypeError):
        found = readers[path.suffix](path)
        found.validate(full=True)  # strings may be no UTF-8
    return as_ids(found, str(path))


def as_ids(found: pa.Array, name: str) -> tuple[pa.Array, str]:
    """Return ids in the type of ids.imx, and its name; raises errors as `read_id_file`."""
    id_type = id_type_of(found.type, name)
    return cast_ids(found, id_type, name, 0), id_type


def lines_of(path: Path) -> pa.Array:
    """Return the lines of a UTF-8 text, without spaces and tabs around them.

    Other separators, at which `str.splitlines` would cut, may be part of an id.
    """
    lines = path.read_bytes().decode("utf-8-sig").split("\n")
    return pa.array([line.strip(" \t\r") for line in lines], pa.string())


def _column(path: Path, column: str | None) -> pa.Array:
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        name = _chosen(path, file.schema_arrow.names, column)
        return file.read([name]).column(0).combine_chunks()
    pieces = IpcPieces(InputFile(str(path), str(path), fs.LocalFileSystem()))
    name = _chosen(path, pieces.schema.names, column)
    found = [batch.column(name) for batch in pieces.batches(range(len(pieces.rows)), [name])]
    return pa.chunked_array(found, pieces.schema.field(name).type).combine_chunks()


def _chosen(path: Path, names: list[str], column: str | None) -> str:
    if column is None and len(names) != 1:
        raise InputError(f"{path}: {len(names)} columns; name the one that holds the ids with --id-column")
    wanted = names[0] if column is None else column
    if wanted not in names:
        raise InputError(f"{path}: no column {wanted!r}; columns are {', '.join(names)}")
    if names.count(wanted) > 1:
        raise InputError(f"{path}: {names.count(wanted)} columns are named {wanted!r}; expected one")
    return wanted
