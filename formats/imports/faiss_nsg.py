"""Graph of faiss's IndexNSGFlat: consecutive lists, each terminated by -1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.imports.faiss_file import FaissFile
from indexmill.formats.imports.index import ListBlock, NeighbourLists, check_entry, check_width
from indexmill.formats.imports.mapped import damaged, not_such_a_file

_CLOSED = -1
#: Parameters of the k-nearest-neighbour graph: K, one byte, and four numbers.
_BUILD_BYTES = 4 + 1 + 4 * 4
#: Numbers read at a time in the search for the ends of lists.
_STEP = 1 << 20


class NsgLists(NeighbourLists):
    """Neighbour lists, whose ends are found when the file is opened. Memory: 8 bytes a vertex.

    Attributes
    ----------
    path : Path
    entry : int
        Vertex where searches start.
    width : int
        R, most neighbours of a list.

    Raises
    ------
    CorruptFile
        If the numbers in `file`, which is read up to the end of the graph, are inconsistent.
    ForeignFile
        If the graph was never built.
    """

    def __init__(self, file: FaissFile, n: int) -> None:
        self.path, self.n = file.path, n
        file.peek("u1", _BUILD_BYTES, "parameters of the build")
        file.at += _BUILD_BYTES
        begin = file.at
        names = ("vertices", "R", "L", "C", "search L", "entry vertex")
        vertices, self.width, _, _, _, self.entry = (file.number("<i4", name) for name in names)
        if vertices != n:
            raise damaged(self.path, f"byte {begin}: vertices of the graph", f"{n:,}", f"{vertices:,}")
        check_width(self.path, self.width, f"byte {begin + 4}: R")
        check_entry(self.path, f"byte {begin + 20}: entry vertex", self.entry, n)
        if file.number("u1", "flag is_built") != 1:
            action = "add vectors to it in faiss first"
            raise not_such_a_file(self.path, f"byte {begin + 24}: flag is_built", 1, 0, action)
        if n > file.left // 4:
            raise damaged(
                self.path, f"byte {file.at}: lists", f"at least {n:,} numbers", f"{file.left // 4:,}"
            )
        self._begin = file.at
        self._ends = self._find_ends(file)
        self._numbers = file.peek("<i4", int(self._ends[-1]) + 1, "lists")
        file.at += self._numbers.nbytes

    def _find_ends(self, file: FaissFile) -> NDArray[np.int64]:
        """Return the place of the -1 after each list, counted in numbers from the first."""
        most = min(file.left // 4, self.n * (self.width + 1))
        numbers = file.peek("<i4", most, "lists")
        ends = np.empty(self.n, np.int64)
        found = 0
        for first in range(0, most, _STEP):
            closed = np.flatnonzero(numbers[first : first + _STEP] == _CLOSED)[: self.n - found]
            ends[found : found + len(closed)] = closed + first
            found += len(closed)
            if found == self.n:
                return ends
        where = f"vertex {found:,}, from byte {self._begin} on: lists"
        raise damaged(self.path, where, f"-1 behind each of {self.n:,} lists", f"{found:,} of them")

    def _lists(self, first: int, last: int) -> ListBlock:
        start, ends = self._start(first), self._ends[first:last]
        degrees = np.diff(ends, prepend=start - 1) - 1
        lists = np.zeros((len(ends), self.width), np.uint32)
        if degrees.max() <= self.width:
            numbers = np.array(self._numbers[start : ends[-1] + 1]).view(np.uint32)
            kept = np.ones(len(numbers), np.bool_)
            kept[ends - start] = False  # the -1
            lists[np.arange(self.width) < degrees[:, None]] = numbers[kept]
        return ListBlock(first, lists, degrees.astype(np.int32))

    def _start(self, vertex: int) -> int:
        return int(self._ends[vertex - 1]) + 1 if vertex else 0

    def _offset(self, vertex: int, j: int) -> int:
        return self._begin + 4 * (self._start(vertex) + max(j, 0))
