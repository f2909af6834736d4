"""The input of `append`, on the command line and from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from indexmill.formats.errors import InputError

if TYPE_CHECKING:
    from indexmill.formats.sources.source import VectorSource


def open_files(
    paths: Sequence[str], column: str | None, id_column: str | None, metadata_columns: Sequence[str]
) -> VectorSource:
    """Open files of vectors to append.

    Raises
    ------
    InputError
        As `open_source`, and if a path is an index.
    """
    from indexmill.formats.index.names import MANIFEST_NAME
    from indexmill.formats.sources.source import open_source

    for path in paths:
        if (Path(path) / MANIFEST_NAME).is_file():
            raise InputError(
                f"{path}: an index; expected files of vectors; join indexes with: indexmill merge A B"
            )
    return open_source(paths, column=column, id_column=id_column, metadata_columns=metadata_columns)
