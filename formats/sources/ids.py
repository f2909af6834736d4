"""Ids alone, one after the other, from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.formats.errors import InputError
from indexmill.formats.sources.arrow_columns import cast_ids, id_type_of

#: A text has no types: its ids are strings, which may stand for numbers.
TEXT_SUFFIX = ".txt"
_TABLES = (".parquet", ".arrow", ".feather")
#: Files that `read_id_file` reads.
SUFFIXES = (".npy", *_TABLES, TEXT_SUFFIX)


def read_id_file(
    path: str | Path, column: str | None = None, more: Mapping[str, Callable[[Path], pa.Array]] | None = None
) -> tuple[pa.Array, str]:
    """Read ids from a .npy file, a column of a Parquet or Arrow file, or the lines of a text that are not empty.

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
        TEXT_SUFFIX: _lines,
        **dict.fromkeys(_TABLES, lambda path: _column(path, column)),
        **(more or {}),
    }
    *most, last = readers
    known = f"{', '.join(most)} or {last}"
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected ids: {known}")
    if path.suffix not in readers:
        raise InputError(f"{path}: a file of unknown type; expected ids: {known}")
    try:
        found = readers[path.suffix](path)
    except (pa.ArrowException, ValueError, TypeError, EOFError) as error:
        raise InputError(
            f"{path}: {str(error).splitlines()[0]}; expected one id a vector: integers, strings or bytes"
        ) from error
    return as_ids(found, str(path))


def as_ids(found: pa.Array, name: str) -> tuple[pa.Array, str]:
    """Return ids in the type of ids.imx, and its name; raises errors as `read_id_file`."""
    id_type = id_type_of(found.type, name)
    return cast_ids(found, id_type, name, 0), id_type


def _lines(path: Path) -> pa.Array:
    lines = path.read_text(encoding="utf-8").splitlines()
    return pa.array([line for line in lines if line], pa.string())


def _column(path: Path, column: str | None) -> pa.Array:
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        name = _chosen(path, file.schema_arrow.names, column)
        return file.read([name]).column(0).combine_chunks()
    with pa.memory_map(str(path)) as mapped:
        table = pa.ipc.open_file(mapped).read_all()
        return table[_chosen(path, table.column_names, column)].combine_chunks()


def _chosen(path: Path, names: list[str], column: str | None) -> str:
    if column is None and len(names) != 1:
        raise InputError(f"{path}: {len(names)} columns; name the one that holds the ids with --id-column")
    wanted = names[0] if column is None else column
    if wanted not in names:
        raise InputError(f"{path}: no column {wanted!r}; columns are {', '.join(names)}")
    return wanted
