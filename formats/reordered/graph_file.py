"""The common form of other engines' graph files: neighbour lists to make an order of, and vertices in that order."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.imports.index import NeighbourLists
from indexmill.formats.reordered.engine_file import EngineFile


class GraphFile(EngineFile):
    """A graph with its vectors; its items are vertices.

    Vertices keep their lists, in their order, and their vectors; only their numbers change. A search therefore computes
    the same distances one after the other, and finds the same vectors. Only ties of equal distances, which engines
    break by number, may be broken in another way.

    Attributes
    ----------
    lists : NeighbourLists
        Lists of level 0, which every vertex has.
    row_bytes : int
        Bytes of a vector, or of a vertex where its vector and its list lie together.
    rows_begin : int
        Offset of the first of these rows in the files that `write` writes.
    """

    unit: ClassVar = "vectors"

    lists: NeighbourLists
    row_bytes: int
    rows_begin: int


def places_of(order: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the place of each vertex in `order`; both have shape (n,)."""
    places = np.empty(len(order), np.uint32)
    places[order] = np.arange(len(order), dtype=np.uint32)
    return places
