"""The graph in faiss's IndexHNSW; blocks of lists are those of level 0.

Level 0 has every vertex, and a search on storage needs no other level.
"""

from __future__ import annotations

import numpy as np

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
    """Lists of all levels: `width` places for each vertex on level 0, before the places of its higher levels.

    Attributes
    ----------
    path : Path
    width : int
        Places of a list, 2 M.
    entry : int or None
        Vertex where searches start; None if they start on a higher level.
    places : int32 array, shape (n_levels + 1,), mapped
        Places of a vertex on the levels below each, summed from 0.
    levels : int32 array, shape (n,), mapped
        Number of levels of each vertex, at least 1.
    offsets : uint64 array, shape (n + 1,), mapped
        Place in `neighbours` of the first list of each vertex, which those of its higher levels follow.
    neighbours : int32 array, mapped
        A list ends at its first -1.
    begin : int
        Offset of `levels` in the file, its length included: what comes before names no vertex.
    tail : int32 array, shape (5,)
        Entry vertex, its level, two parameters of searches, and a number that is not used.

    Raises
    ------
    CorruptFile
        If the numbers in `file`, which is read up to the end of the graph, are inconsistent.
    """

    def __init__(self, file: FaissFile, n: int) -> None:
        self.path, self.n = file.path, n
        file.vector("<f8", "probabilities of the levels")
        begin = file.at
        self.places = file.vector("<i4", "places a vertex has, summed over levels")
        summed = self.places.astype(np.int64)
        if len(summed) < 2 or summed[0] != 0 or (np.diff(summed) < 1).any():
            raise damaged(self.path, f"byte {begin}: places summed over levels", "numbers that ascend from 0",
                          summed[:8].tolist())  # fmt: skip
        self.width = int(summed[1])
        check_width(self.path, self.width, f"byte {begin + 12}: places on level 0")
        self.begin = file.at
        self.levels = file.vector("<i4", "levels")
        self.offsets = file.vector("<u8", "offsets of the lists")
        if len(self.levels) != n or len(self.offsets) != n + 1:
            got = f"{len(self.levels):,} and {len(self.offsets):,}"
            raise damaged(self.path, "levels and offsets", f"{n:,} and {n + 1:,}", got)
        self.neighbours = file.vector("<i4", "neighbours")
        self._lists_begin = file.at - self.neighbours.nbytes
        begin = file.at
        self.tail = file.array("<i4", _TAIL_FIELDS, "parameters of the search")
        entry, top = self.tail[:2].tolist()
        check_entry(self.path, f"byte {begin}: entry vertex", entry, n)
        self.entry: int | None = entry if top == 0 else None
        self._check_offsets()

    def _check_offsets(self) -> None:
        """Check that each vertex has the places of its levels, one after the other."""
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.neighbours):
            ends = f"{self.offsets[0]:,} and {self.offsets[-1]:,}"
            raise damaged(self.path, "offsets: ends", f"0 and {len(self.neighbours):,}", ends)
        for first in range(0, self.n, BLOCK_VERTICES):
            block = self.levels[first : first + BLOCK_VERTICES].astype(np.int64)
            wrong = (block < 1) | (block >= len(self.places))
            if not wrong.any():
                offsets = self.offsets[first : first + len(block) + 1].astype(np.int64)
                wrong = np.diff(offsets) != self.places[block]
            if wrong.any():
                v = first + int(np.argmax(wrong))
                got = f"level {self.levels[v]}, offsets {self.offsets[v]:,} and {self.offsets[v + 1]:,}"
                raise damaged(self.path, f"vertex {v:,}: levels and offsets", "the places of its levels", got)

    def _lists(self, first: int, last: int) -> ListBlock:
        """Return lists, each of which ends at its first -1."""
        starts = self.offsets[first:last].astype(np.int64)
        lists = self.neighbours[starts[:, None] + np.arange(self.width)].view(np.uint32)
        degrees = np.logical_and.accumulate(lists != _NOBODY, axis=1).sum(axis=1, dtype=np.int32)
        return ListBlock(first, lists, degrees)

    def _offset(self, vertex: int, j: int) -> int:
        return self._lists_begin + 4 * (int(self.offsets[vertex]) + max(j, 0))
