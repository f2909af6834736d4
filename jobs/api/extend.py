"""What `append` and `merge` share, on the command line and from Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def show_result(out: Path, manifest: dict[str, Any], as_json: bool) -> None:
    """Print what was published, as `build` does."""
    if as_json:
        print(json.dumps(manifest, indent=2))
        return
    from indexmill.jobs.cli.commands.build import print_summary
    from indexmill.jobs.console.tables import stdout_console

    print_summary(stdout_console(), out, manifest)
