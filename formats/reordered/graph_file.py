"""The common form of other engines' graph files: neighbour lists to make an order of, and the file in that order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.imports.index import NeighbourLists

#: Bytes of rows that are gathered at a time.
STEP_BYTES = 32 << 20
#: Called with a number of vertices.
Advance = Callable[[int], None]


class GraphFile(ABC):
    """A graph with its vectors, in one file of another engine, whose structure was checked.

    Vertices keep their lists, in their order, and their vectors; only their numbers change. A search therefore computes
    the same distances one after the other, and finds the same vectors. Only ties of equal distances, which engines
    break by number, may be broken in another way.

    Attributes
    ----------
    kind : str
        What the file holds.
    path : Path
    n : int
        Number of vertices.
    lists : NeighbourLists
        Lists of level 0, which every vertex has.
    row_bytes : int
        Bytes of a vector, or of a vertex where its vector and its list lie together.
    rows_begin : int
        Offset of the first of these rows in the files that `write` writes.
    size : int
        Bytes of the files that `write` writes.
    ids : str
        How results of the written file name vectors.
    held_bytes : int
        Memory that the opened file takes.
    """

    #: Number of times that `write` goes through all vertices.
    passes: ClassVar = 2

    kind: str
    path: Path
    n: int
    lists: NeighbourLists
    row_bytes: int
    rows_begin: int
    size: int
    ids: str
    held_bytes: int = 0

    @property
    def points(self) -> NDArray[Any] | None:
        """Vectors to make an order of, mapped: float32 or uint8, shape (n, dim); None where the file does not tell."""
        return None

    @abstractmethod
    def write(self, order: NDArray[np.uint32], file: BinaryIO, advance: Advance) -> None:
        """Write the file with vertex ``order[s]`` at place s; `order` has shape (n,) and is a permutation.

        Memory: 32 bytes a vertex, `order` among them, and about 100 MiB; the original is mapped.

        Raises
        ------
        CorruptFile
            If a neighbour on a higher level is no vertex of that level; `file` is then unfinished.
        """


def places_of(order: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the place of each vertex in `order`; both have shape (n,)."""
    places = np.empty(len(order), np.uint32)
    places[order] = np.arange(len(order), dtype=np.uint32)
    return places


def gathered(rows: NDArray[Any], chosen: NDArray[np.uint32]) -> NDArray[Any]:
    """Return rows of a mapped array, shape (m, ...), read from front to back."""
    ascending = np.argsort(chosen, kind="stable")
    found = np.empty((len(chosen), *rows.shape[1:]), rows.dtype)
    found[ascending] = rows[chosen[ascending]]
    return found


def write_rows(rows: NDArray[np.uint8], order: NDArray[np.uint32], file: BinaryIO, advance: Advance) -> None:
    """Write rows, uint8 (n, row_bytes), mapped, in `order`."""
    step = max(1, STEP_BYTES // rows.shape[1])
    for first in range(0, len(order), step):
        chosen = order[first : first + step]
        file.write(gathered(rows, chosen).data)
        advance(len(chosen))
