"""Ids to delete: shared by `indexmill delete` and `indexmill.delete`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.jobs.api.ids import given_ids

if TYPE_CHECKING:
    from indexmill.formats.sources.ids import IdList

#: A text has no types: its ids are strings, which may stand for numbers; empty lines are no ids.
_TEXT_SUFFIX = ".txt"


def ids_to_delete(ids: Any, column: str | None = None) -> IdList:
    """Return ids of a file, of a text with one a line, or of a caller's array.

    Parameters and errors are those of `given_ids`.
    """
    import numpy as np
    import pyarrow.compute as pc

    from indexmill.formats.sources.ids import IdList, lines_of, read_id_file
    from indexmill.formats.sources.source import ARRAY_NAME

    values, _ = given_ids(ids, column, partial(read_id_file, more={_TEXT_SUFFIX: lines_of}))
    if not isinstance(ids, (str, os.PathLike)):
        return IdList(values, ARRAY_NAME)
    if Path(ids).suffix != _TEXT_SUFFIX:
        return IdList(values, os.fspath(ids))
    is_id = pc.not_equal(values, "")
    lines = 1 + np.flatnonzero(is_id.to_numpy(zero_copy_only=False))
    return IdList(values.filter(is_id), os.fspath(ids), lines)
