"""An index whose blocks are objects in a store, as the reader is given it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

#: Seconds after which a request is made again.
TIMEOUT_S = 10.0


class Remote(Protocol):
    """An index in a store, and a directory that has of its files what is read when it is opened."""

    def read(self, name: str, offset: int, n_bytes: int) -> bytes:
        """Return a range of file `name`; several threads call it side by side.

        Raises
        ------
        OSError
            If it may succeed later.
        IndexmillError
            If it will not.
        """

    def keep(self, name: str, offset: int, data: bytes) -> None:
        """Keep a range that was read and delivered, for later; one thread calls it, for all indexes of the process."""

    def where(self, name: str) -> str:
        """Return where file `name` is, for messages: one address for all, and the name behind it."""

    def is_replaced(self) -> bool:
        """Return whether another index has taken the place of this one; one of those threads calls it."""

    def fill(self, name: str) -> None:
        """Fetch the rest of file `name`, which is then read as one of this machine.

        Raises
        ------
        IndexmillError
            If storage refuses.
        """


class Stored(NamedTuple):
    """Where blocks are, and the limits of reading them.

    Attributes
    ----------
    store : Remote
    cache_bytes : int
        Most bytes of blocks that are kept in memory.
    timeout_s : float
        Seconds after which a request is made again; the answer that comes first counts. At most a day.
    blocks : path, optional
        Directory where blocks are looked for first, in the files that `indexmill.pipeline.urls.blocks` describes.
    """

    store: Remote
    cache_bytes: int
    timeout_s: float = TIMEOUT_S
    blocks: Path | None = None
