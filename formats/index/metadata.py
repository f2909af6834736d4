"""metadata.parquet: the metadata columns of an index, in vector-id order (docs/formats/manifest.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.errors import CorruptFile
from indexmill.formats.index.where import not_comparable, parse_condition


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
    are_label : bool
        Whether they are all rows of one value of the column of labels, and the condition reads no other column.
    """

    mask: NDArray[np.bool_]
    are_label: bool


def chosen_rows(
    file: BinaryIO, path: str | Path, sha256: str, condition: str, label_column: str | None = None
) -> ChosenRows:
    """Return what `rows_where` does, and whether the rows are those of a label of `label_column`, if it is given."""
    _check(file, path, sha256)
    metadata = pq.ParquetFile(file)
    chosen = parse_condition(condition, metadata.schema_arrow)
    table = metadata.read(columns=sorted(chosen.columns))
    row = free_name("row", table.column_names)
    table = table.append_column(row, pa.array(np.arange(table.num_rows)))
    try:
        rows = table.filter(chosen.expression)[row]
    except pa.ArrowException as error:
        raise not_comparable(condition, table.schema, chosen.columns) from error
    mask = np.zeros(table.num_rows, np.bool_)
    mask[rows.to_numpy()] = True
    return ChosenRows(
        mask, chosen.columns == {label_column} and len(rows) > 0 and _is_one_value(table[label_column], rows)
    )


def _is_one_value(values: pa.ChunkedArray, rows: pa.ChunkedArray) -> bool:
    """Tell whether `rows` of a column, which a condition on it alone chose, have one value, and none is missing.

    Rows of equal values satisfy such a condition alike. So rows of one value are as many as have the first one's.
    """
    first, last = (values[rows[at].as_py()].as_py() for at in (0, -1))
    if first is None or first != last:  # most conditions that choose several values end here
        return False
    type_ = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    same = pc.sum(pc.equal(values, pa.scalar(first, type_)))
    return bool(same.as_py() == len(rows))


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
