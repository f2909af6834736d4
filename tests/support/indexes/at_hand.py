"""A store that is a directory of this machine, and misbehaves as a test wants it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class Directory:
    """A `Remote` that reads the files of an index.

    Attributes
    ----------
    spoil : function of bytes
        What becomes of an answer; it may wait, or raise.
    replaced : function
        What tells whether the index was replaced.
    n_asked : int
        How often it was called.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spoil: Callable[[bytes], bytes] = lambda data: data
        self.replaced: Callable[[], bool] = lambda: False
        self.n_asked = 0

    def read(self, name: str, offset: int, n_bytes: int) -> bytes:
        with (self.folder / name).open("rb") as file:
            file.seek(offset)
            return self.spoil(file.read(n_bytes))

    def keep(self, name: str, offset: int, data: bytes) -> None:
        """Keep nothing."""

    def where(self, name: str) -> str:
        return f"store://{self.folder.name}/{name}"

    def is_replaced(self) -> bool:
        self.n_asked += 1
        return self.replaced()

    def fill(self, name: str) -> None:
        """Do nothing: all files are there."""
