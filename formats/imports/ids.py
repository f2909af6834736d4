"""User ids for an imported index without ids, from a file with one id for each vector, in their order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from indexmill.formats.imports.diskann_bin import open_bin
from indexmill.formats.sources import ids


def read_id_file(path: str | Path, column: str | None = None) -> tuple[pa.Array, str]:
    """Read ids from a file that `formats.sources.ids.read_id_file` reads, or the .tags of DiskANN and PipeANN.

    Raises
    ------
    InputError
        If the file cannot be read, or has no ids.
    CorruptFile
        If it is a damaged .tags file.
    """
    return ids.read_id_file(path, column, {".tags": _tags})


def _tags(path: Path) -> pa.Array:
    return pa.array(open_bin(path, "<u4", "tags").ravel())
