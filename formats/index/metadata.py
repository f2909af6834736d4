"""metadata.parquet: the metadata columns of an index, in vector-id order (docs/formats/manifest.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Container
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.formats.errors import CorruptFile

METADATA_NAME = "metadata.parquet"


def read_metadata(file: BinaryIO, path: str | Path, sha256: str) -> pa.Table:
    """Read the whole table from an open file, once its bytes are known to be those of the manifest.

    Parameters
    ----------
    file : binary file, open for reading
    path : str or Path
        For messages.
    sha256 : str
        What the manifest says, 64 hex digits.

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
    """Put metadata columns after `columns`; one whose name is taken becomes ``metadata_NAME``."""
    for name in metadata.column_names:
        columns[free_name(name, columns)] = metadata[name]


def free_name(name: str, taken: Container[str]) -> str:
    """Return `name`, with ``metadata_`` in front as often as it is taken."""
    while name in taken:
        name = f"metadata_{name}"
    return name
