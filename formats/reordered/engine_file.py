"""The common form of other engines' files: what an order is made of, and the file in that order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

#: Bytes that are read at a time.
STEP_BYTES = 32 << 20
#: Called with a number of items.
Advance = Callable[[int], None]


class EngineFile(ABC):
    """An index in one file of another engine, whose structure was checked: items that an order gives other numbers.

    Items are the vertices of a graph, or inverted lists.

    Attributes
    ----------
    kind : str
        What the file holds.
    path : Path
    files : tuple of Path
        All files that are read.
    n : int
        Number of items.
    n_vectors : int
    size : int
        Bytes of the files that `write` writes.
    ids : str
        How results of the written file name vectors.
    held_bytes : int
        Memory that the opened file takes.
    """

    #: Number of times that `write` goes through all items.
    passes: ClassVar = 2
    #: What items are called.
    unit: ClassVar[str]

    kind: str
    path: Path
    files: tuple[Path, ...]
    n: int
    n_vectors: int
    size: int
    ids: str
    held_bytes: int = 0

    @property
    def points(self) -> NDArray[Any] | None:
        """Vectors to make an order of, mapped: float32 or uint8, shape (n, dim); None where the file does not tell."""
        return None

    @abstractmethod
    def write(self, order: NDArray[np.uint32], file: BinaryIO, advance: Advance) -> None:
        """Write the file with item ``order[s]`` at place s; `order` has shape (n,) and is a permutation.

        Memory: 32 bytes an item, `order` among them, and about 100 MiB; the original is mapped.

        Raises
        ------
        CorruptFile
            If damage is found on the way; `file` is then unfinished.
        """


def parts(order: NDArray[np.uint32], most: int) -> Iterator[NDArray[np.uint32]]:
    """Yield an order, shape (n,), in parts of up to `most` items; at least one item is in each."""
    step = max(1, most)
    for first in range(0, len(order), step):
        yield order[first : first + step]


def gathered(rows: NDArray[Any], chosen: NDArray[np.uint32]) -> NDArray[Any]:
    """Return rows of a mapped array, shape (m, ...), read from front to back."""
    ascending = np.argsort(chosen, kind="stable")
    found = np.empty((len(chosen), *rows.shape[1:]), rows.dtype)
    found[ascending] = rows[chosen[ascending]]
    return found


def write_rows(rows: NDArray[np.uint8], order: NDArray[np.uint32], file: BinaryIO, advance: Advance) -> None:
    """Write rows, uint8 (n, row_bytes), mapped, in `order`."""
    for chosen in parts(order, STEP_BYTES // rows.shape[1]):
        file.write(gathered(rows, chosen).data)
        advance(len(chosen))
