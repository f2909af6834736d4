"""Ids to delete: shared by `indexmill delete` and `indexmill.delete`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.jobs.api.ids import given_ids

if TYPE_CHECKING:
    import pyarrow as pa

#: A text has no types: its ids are strings, which may stand for numbers.
_TEXT_SUFFIX = ".txt"


def ids_to_delete(ids: Any, column: str | None = None) -> tuple[pa.Array, bool]:
    """Return ids, and whether they are from a text with one a line, where strings may be numbers.

    Parameters and errors are those of `given_ids`.
    """
    from indexmill.formats.sources.ids import lines_of, read_id_file

    is_text = isinstance(ids, (str, os.PathLike)) and Path(ids).suffix == _TEXT_SUFFIX
    found, _ = given_ids(ids, column, partial(read_id_file, more={_TEXT_SUFFIX: lines_of}))
    return found, is_text
