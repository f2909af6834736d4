"""Level 0 of the graph in faiss's IndexHNSWFlat: it has every vertex, and a search on storage needs no other level."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.imports.faiss_file import FaissFile
from indexmill.formats.imports.index import (
    BLOCK_VERTICES,
    ListBlock,
    NeighbourLists,
    check_entry,
    check_width,
)
from indexmill.formats.imports.mapped import damaged

_NOBODY = np.uint32(0xFFFFFFFF)  # -1
#: Fields after the lists: entry point, top level, two search parameters and an unused one.
_TAIL_FIELDS = 5


class HnswLists(NeighbourLists):
    """Lists of level 0: `width` places for each vertex, before the places of its higher levels.

    Attributes
    ----------
    path : Path
    width : int
        Places of a list, 2 M.
    entry : int or None
        Vertex where searches start; None if they start on a higher level.

    Raises
    ------
    CorruptFile
        If the numbers in `file`, which is read up to the end of the graph, are inconsistent.
    """

    def __init__(self, file: FaissFile, n: int) -> None:
        self.path, self.n = file.path, n
        file.vector("<f8", "probabilities of the levels")
        begin = file.at
        places = file.vector("<i4", "places a vertex has, summed over levels")
        if len(places) < 2 or places[0] != 0 or (np.diff(places.astype(np.int64)) < 1).any():
            raise damaged(self.path, f"byte {begin}: places summed over levels", "numbers that ascend from 0",
                          places[:8].tolist())  # fmt: skip
        self.width = int(places[1])
        check_width(self.path, self.width, f"byte {begin + 12}: places on level 0")
        levels = file.vector("<i4", "levels")
        self._offsets = file.vector("<u8", "offsets of the lists")
        if len(levels) != n or len(self._offsets) != n + 1:
            got = f"{len(levels):,} and {len(self._offsets):,}"
            raise damaged(self.path, "levels and offsets", f"{n:,} and {n + 1:,}", got)
        self._neighbours = file.vector("<i4", "neighbours")
        self._begin = file.at - self._neighbours.nbytes
        begin = file.at
        entry, top = file.array("<i4", _TAIL_FIELDS, "parameters of the search")[:2].tolist()
        check_entry(self.path, f"byte {begin}: entry vertex", entry, n)
        self.entry: int | None = entry if top == 0 else None
        self._check_offsets(levels, places)

    def _check_offsets(self, levels: NDArray[Any], places: NDArray[Any]) -> None:
        """Check that each vertex has the places of its levels, one after the other."""
        if self._offsets[0] != 0 or self._offsets[-1] != len(self._neighbours):
            ends = f"{self._offsets[0]:,} and {self._offsets[-1]:,}"
            raise damaged(self.path, "offsets: ends", f"0 and {len(self._neighbours):,}", ends)
        for first in range(0, self.n, BLOCK_VERTICES):
            block = levels[first : first + BLOCK_VERTICES].astype(np.int64)
            wrong = (block < 1) | (block >= len(places))
            if not wrong.any():
                offsets = self._offsets[first : first + len(block) + 1].astype(np.int64)
                wrong = np.diff(offsets) != places[block]
            if wrong.any():
                v = first + int(np.argmax(wrong))
                got = f"level {levels[v]}, offsets {self._offsets[v]:,} and {self._offsets[v + 1]:,}"
                raise damaged(self.path, f"vertex {v:,}: levels and offsets", "the places of its levels", got)

    def _lists(self, first: int, last: int) -> ListBlock:
        """Return lists, each of which ends at its first -1."""
        starts = self._offsets[first:last].astype(np.int64)
        lists = self._neighbours[starts[:, None] + np.arange(self.width)].view(np.uint32)
        degrees = np.logical_and.accumulate(lists != _NOBODY, axis=1).sum(axis=1, dtype=np.int32)
        return ListBlock(first, lists, degrees)

    def _offset(self, vertex: int, j: int) -> int:
        return self._begin + 4 * (int(self._offsets[vertex]) + max(j, 0))
