"""Files of an index that a run writes one by one; a run that resumes keeps those that are whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class Output(NamedTuple):
    """One file, with those that are written together with it.

    Attributes
    ----------
    name : str
        In the directory of the index.
    steps : int
        Of progress that writing it takes.
    write : callable
        Writes the file to the path that it is given, and `beside` next to it; its second argument counts steps.
    beside : tuple of str
        Names of the other files: whole before the file is.
    """

    name: str
    steps: int
    write: Callable[[Path, Callable[[int], None]], None]
    beside: tuple[str, ...] = ()


def write_all(outputs: Sequence[Output], directory: Path, advance: Callable[[int], None]) -> None:
    """Write files to `directory`; `advance` counts their steps."""
    for output in outputs:
        output.write(directory / output.name, advance)
