"""Peak disk space of a folder while it is worked in."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

#: Seconds between two looks; a look takes microseconds a file.
INTERVAL_S = 0.1
#: Bytes of a block of st_blocks, whatever the file system's own.
_BLOCK = 512


class PeakScratch:
    """Samples the disk space of a folder in a thread until the block ends.

    Parameters
    ----------
    folder : Path
        Need not be there yet.

    Attributes
    ----------
    bytes : int
        The largest sum so far.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-scratch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self.bytes = max(self.bytes, allocated_bytes(self.folder))


def allocated_bytes(folder: Path) -> int:
    """Return the disk space of all files below a folder: holes are not counted, files with two names once."""
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.lstat(os.path.join(parent, name))
            except FileNotFoundError:
                continue  # it was removed meanwhile
            sizes[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK
    return sum(sizes.values())
