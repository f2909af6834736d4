"""metadata.parquet: the metadata columns of an index, in vector-id order (docs/formats/manifest.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Container
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.formats.errors import CorruptFile


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
    file.seek(0)
    found = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    if found != sha256:
        raise CorruptFile(
            f"{path}: SHA-256: expected {sha256}, got {found}; the file is damaged: copy it again or rebuild the index"
        )
    file.seek(0)
    return pq.read_table(file)


def add_metadata(columns: dict[str, Any], metadata: pa.Table) -> None:
    """Append the metadata columns to `columns`; a column whose name is taken becomes ``metadata_NAME``."""
    for name in metadata.column_names:
        columns[free_name(name, columns)] = metadata[name]


def free_name(name: str, taken: Container[str]) -> str:
    """Return `name`, prefixed with ``metadata_`` until it is not taken."""
    while name in taken:
        name = f"metadata_{name}"
    return name
