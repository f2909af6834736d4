"""The common base of objects that hold files open."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self


class Closing:
    """A context that closes its files at the end. A subclass puts what holds them open into ``_stack``."""

    _stack: ExitStack

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._stack.close()
