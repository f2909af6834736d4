"""In-memory indexes of DiskANN: a graph file with consecutive lists, and the vectors in ``.data``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.imports.index import ListBlock, NeighbourLists, check_entry, check_width
from indexmill.formats.imports.mapped import MappedFile, damaged, not_such_a_file
from indexmill.formats.kernel import kernel

_HEADER_BYTES = 24


class MemoryLists(NeighbourLists):
    """Graph of an in-memory index.

    Every list follows its length, so one pass finds the places of all lists when the file is opened. Memory: 8 bytes a
    vertex.

    Attributes
    ----------
    path : Path
    entry : int
        Vertex where searches start.
    width : int
        Length of the longest list, at least 1.

    Raises
    ------
    CorruptFile
        If the file does not hold `n` lists.
    ForeignFile
        If it belongs to a dynamic index, whose vectors may differ from the original ones.
    """

    def __init__(self, path: Path, n: int) -> None:
        self.path, self.n = path, n
        file = MappedFile(path)
        if file.size < _HEADER_BYTES or (file.size - _HEADER_BYTES) % 4:
            raise damaged(path, "size of the file", "24 + 4 x a number of integers", f"{file.size:,}")
        size = file.number(0, "<u8", "size of the file")
        file.check_size(size, "what the header says")
        self.entry = file.number(12, "<u4", "entry vertex")
        frozen = file.number(16, "<u8", "frozen vertices")
        if frozen:
            action = "build a static index of its vectors"
            raise not_such_a_file(
                path, "byte 16: frozen vertices", "0, a static index", f"{frozen:,}", action
            )
        check_entry(path, "byte 12: entry vertex", self.entry, n)
        if n > (file.size - _HEADER_BYTES) // 4:
            raise damaged(path, "size of the file", f"at least 24 + 4 x {n:,} bytes", f"{file.size:,}")
        self._words = file.array(_HEADER_BYTES, "<u4", (file.size - _HEADER_BYTES) // 4, "lists")
        self._starts = np.empty(n + 1, np.int64)
        found = _walk(self._words, self._starts)
        end = _HEADER_BYTES + 4 * int(self._starts[found])
        if found < n:
            where = f"vertex {found:,}, at byte {end:,}: list"
            raise damaged(path, where, "a length and as many neighbours", "the end of the file")
        file.check_size(end, f"24 and the lists of {n:,} vertices")
        self.width = max(1, int(np.diff(self._starts).max()) - 1)
        check_width(path, self.width, "neighbours of the longest list")

    def _lists(self, first: int, last: int) -> ListBlock:
        starts = self._starts[first : last + 1]
        degrees = np.diff(starts) - 1
        flat = np.array(self._words[starts[0] : starts[-1]])
        inside = np.arange(self.width) < degrees[:, None]
        neighbours = np.zeros(inside.shape, np.uint32)
        kept = np.ones(len(flat), np.bool_)
        kept[starts[:-1] - starts[0]] = False  # the lengths
        neighbours[inside] = flat[kept]
        return ListBlock(first, neighbours, degrees.astype(np.int32))

    def _offset(self, vertex: int, j: int) -> int:
        return _HEADER_BYTES + 4 * (int(self._starts[vertex]) + 1 + j)


@kernel
def _walk(words: Any, starts: Any) -> Any:  # pragma: no cover - compiled
    """Write the start of each list, and the end of the last one; return the number of lists within `words`."""
    n = starts.size - 1
    at: Any = 0
    starts[0] = 0
    for v in range(n):
        if at >= words.size:
            return v
        following = at + 1 + np.int64(words[at])
        if following > words.size:
            return v
        at = following
        starts[v + 1] = at
    return n
