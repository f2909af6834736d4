"""The directory in which a tuning keeps its files while it runs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indexmill.pipeline.mill.disk_space import check_free


def scratch_place(work: str | os.PathLike[str] | None) -> Path:
    """Return the directory of scratch files: `work`, or where the system keeps such files."""
    return Path(work or tempfile.gettempdir())


@contextmanager
def scratch_directory(work: str | os.PathLike[str] | None, need: int) -> Iterator[Path]:
    """Make a directory for `need` bytes in `scratch_place`, and delete it in the end.

    Raises
    ------
    BudgetError
        If there is no room for them.
    """
    place = scratch_place(work)
    check_free(place, need, "tuning")
    place.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="indexmill-tune-", dir=place))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
