"""Space in the work directory and at the output: the bytes that a job allows, and those that are free there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from indexmill.formats.errors import BudgetError

Hint: TypeAlias = Callable[[int], str]


def no_hint(space: int) -> str:
    """Return no advice."""
    return ""


def check_scratch(need: int, allowed: int, directory: Path, hint: Hint = no_hint) -> None:
    """Refuse a build that fills more scratch space than its job allows.

    Parameters
    ----------
    hint : callable
        Returns what else would help where there is so much space, beginning with ", or".

    Raises
    ------
    BudgetError
    """
    if need > allowed:
        raise BudgetError(
            f"scratch: this build fills {directory} with {need:,} bytes, the job allows {allowed:,}; "
            f"give --scratch {need} or more{hint(allowed)}"
        )


def existing_parent(path: Path) -> Path:
    """Return `path`, or the nearest folder above it that exists."""
    path = Path(os.path.abspath(path))
    while not path.is_dir():
        path = path.parent
    return path


def used_bytes(folder: Path, skip: str = "") -> int:
    """Return the bytes of all files below a folder, each counted once however many names it has.

    Names that equal `skip` are not counted.
    """
    sizes: dict[int, int] = {}
    for below, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.stat(os.path.join(below, name))
            except FileNotFoundError:  # a task in flight has just renamed it
                continue
            if name != skip:
                sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


def check_free(directory: Path, need: int, job: str = "build", hint: Hint = no_hint, freed: int = 0) -> None:
    """Refuse a job that the file system has no space for.

    Parameters
    ----------
    freed : int
        Bytes of files there that will be gone when the job begins.

    Raises
    ------
    BudgetError
        Naming the directory, what is needed and what is free.
    """
    free = shutil.disk_usage(existing_parent(directory)).free + freed
    if need > free:
        when = f" once the running one is done with {freed:,}" if freed else ""
        raise BudgetError(
            f"scratch: {directory}: the {job} needs {need:,} bytes there, {free:,} are free{when}; make room, or "
            f"name a --work directory elsewhere{hint(free)}"
        )


def check_room(out: Path, need: int, what: str = "new file") -> None:
    """Refuse an output that the file system has no space for.

    Parameters
    ----------
    what : str
        What takes `need` bytes.

    Raises
    ------
    BudgetError
        Naming the directory, what is needed and what is free.
    """
    free = shutil.disk_usage(out.parent).free
    if need > free:
        raise BudgetError(
            f"out: {out.parent}: the {what} takes {need:,} bytes, {free:,} are free; make room, or name another --out"
        )
