"""metadata.parquet: the metadata columns of an index, in vector-id order (docs/formats/manifest.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.errors import CorruptFile, InputError
from indexmill.formats.index.where import parse_condition


def read_metadata(file: BinaryIO, path: str | Path, sha256: str) -> pa.Table:
    """Read the whole table from an open file, after comparing its digest with the manifest's.

    Parameters
    ----------
    file : binary file, open for reading
    path : str or Path
        Name of the file in messages.
    sha256 : str
        Digest in the manifest, 64 hex digits.

    Raises
    ------
    CorruptFile
        If the bytes differ.
    """
    _check(file, path, sha256)
    return pq.read_table(file)


def rows_where(file: BinaryIO, path: str | Path, sha256: str, condition: str) -> NDArray[np.bool_]:
    """Return which rows satisfy a condition (`where`), bool, shape (n_vectors,); only its columns are held in memory.

    Parameters
    ----------
    file, path, sha256
        As in `read_metadata`.
    condition : str
        Such as ``price < 20 and lang = 'de'``. A row where it is neither true nor false does not satisfy it.

    Raises
    ------
    CorruptFile
        If the bytes differ.
    InputError
        If `condition` is none, or of columns that are not there or are of another type.
    """
    return chosen_rows(file, path, sha256, condition).mask


@dataclass(frozen=True)
class ChosenRows:
    """The rows that satisfy a condition.

    Attributes
    ----------
    mask : bool array, shape (n_vectors,)
    label_of : str or None
        The column, if the condition reads one alone and chooses all rows of one of its values: those of a label.
    """

    mask: NDArray[np.bool_]
    label_of: str | None


def chosen_rows(file: BinaryIO, path: str | Path, sha256: str, condition: str) -> ChosenRows:
    """Return what `rows_where` does, and whether the rows are those of a label."""
    _check(file, path, sha256)
    metadata = pq.ParquetFile(file)
    chosen = parse_condition(condition, metadata.schema_arrow)
    table = metadata.read(columns=sorted(chosen.columns))
    row = free_name("row", table.column_names)
    table = table.append_column(row, pa.array(np.arange(table.num_rows)))
    try:
        rows = table.filter(chosen.expression)[row]
    except pa.ArrowException as error:
        types = ", ".join(f"{name}: {table.schema.field(name).type}" for name in sorted(chosen.columns))
        raise InputError(f"where: {condition}: {error}; the columns are {types}") from None
    mask = np.zeros(table.num_rows, np.bool_)
    mask[rows.to_numpy()] = True
    # Rows of equal values satisfy a condition on them alike: of each value there are all, or none.
    only = next(iter(chosen.columns)) if len(chosen.columns) == 1 and mask.any() else None
    return ChosenRows(mask, only if only is not None and _is_one_value(table[only].take(rows)) else None)


def _is_one_value(values: pa.ChunkedArray) -> bool:
    """Tell whether values are all the same, and none is missing; false for types that cannot be compared so."""
    if values.null_count:
        return False
    try:
        return len(values.unique()) == 1
    except pa.ArrowNotImplementedError:
        return False


def _check(file: BinaryIO, path: str | Path, sha256: str) -> None:
    """Raise `CorruptFile` unless a file has this digest; it is at its beginning then."""
    file.seek(0)
    found = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    if found != sha256:
        raise CorruptFile(
            f"{path}: SHA-256: expected {sha256}, got {found}; the file is damaged: copy it again or rebuild the index"
        )
    file.seek(0)


def add_metadata(columns: dict[str, Any], metadata: pa.Table) -> None:
    """Append the metadata columns to `columns`; a column whose name is taken becomes ``metadata_NAME``."""
    for name in metadata.column_names:
        columns[free_name(name, columns)] = metadata[name]


def free_name(name: str, taken: Container[str]) -> str:
    """Return `name`, prefixed with ``metadata_`` until it is not taken."""
    while name in taken:
        name = f"metadata_{name}"
    return name
