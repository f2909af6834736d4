"""hnswlib's index with its vertices in another order; labels move with their vertices (docs/formats/imports.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.imports.index import ListBlock, NeighbourLists, check_entry, check_width
from indexmill.formats.imports.mapped import MappedFile, damaged
from indexmill.formats.kernel import kernel
from indexmill.formats.reordered.engine_file import STEP_BYTES, Advance, gathered, parts
from indexmill.formats.reordered.graph_file import GraphFile, places_of

#: Size, type and place of every field of the header, which has neither magic nor version.
HEADER = np.dtype(
    [
        ("level0_at", "<u8"), ("room", "<u8"), ("n", "<u8"), ("vertex_bytes", "<u8"), ("label_at", "<u8"),
        ("vector_at", "<u8"), ("top", "<i4"), ("entry", "<u4"), ("width", "<u8"), ("width_0", "<u8"),
        ("m", "<u8"), ("level_scale", "<f8"), ("build_list", "<u8"),
    ]
)  # fmt: skip
_LABEL_BYTES = 8
#: A list is its length, u16, two bytes of marks, and its places.
_LENGTH = np.uint32(0xFFFF)


class _LowestLists(NeighbourLists):
    """Lists of level 0.

    Parameters
    ----------
    vertices : uint8 array, shape (n, vertex_bytes), mapped
    width : int
    """

    def __init__(self, path: Path, vertices: NDArray[np.uint8], width: int) -> None:
        self.path, self.n, self.width = path, len(vertices), width
        self._vertices = vertices

    def _lists(self, first: int, last: int) -> ListBlock:
        lists = _as_lists(self._vertices[first:last], self.width)
        return ListBlock(first, lists[:, 1:], (lists[:, 0] & _LENGTH).astype(np.int32))

    def _offset(self, vertex: int, j: int) -> int:
        vertex_bytes = int(self._vertices.shape[1])
        return HEADER.itemsize + vertex * vertex_bytes + 4 * (j + 1)


class HnswlibFile(GraphFile):
    """An index of hnswlib 0.8, of any type of vectors and any metric: the file tells neither.

    Raises
    ------
    InputError
        If there is no such file.
    CorruptFile
        If its numbers are inconsistent.
    """

    kind = "hnswlib"
    ids = "as before, by the labels"

    def __init__(self, path: str | Path) -> None:
        self._file = MappedFile(path)
        self.path, self.files = self._file.path, (self._file.path,)
        self.size = self._file.size
        head = self._file.array(0, HEADER, 1, "header")
        self._header = head.copy()
        field = {name: int(head[name][0]) for name in HEADER.names or () if name != "level_scale"}
        self.n, self.n_vectors, self.row_bytes = field["n"], field["n"], field["vertex_bytes"]
        self._check_header(field)
        self._width, self._top, self._entry = field["width"], field["top"], field["entry"]
        vertices = self._file.array(HEADER.itemsize, np.uint8, (self.n, self.row_bytes), "vertices")
        self._vertices: NDArray[np.uint8] = vertices
        self.lists = _LowestLists(self.path, vertices, field["width_0"])
        self.rows_begin = HEADER.itemsize
        self._bytes: NDArray[np.uint8] = self._file.array(0, np.uint8, self.size, "file")
        self._list_bytes = 4 * (self._width + 1)
        self._records = self._record_offsets()
        self.held_bytes = self._records.nbytes
        if self._levels(np.array([self._entry]))[0] != self._top:
            got = f"vertex {self._entry:,}, which has others"
            raise damaged(self.path, "entry vertex", f"one with {self._top:,} higher levels", got)

    def write(self, order: NDArray[np.uint32], file: BinaryIO, advance: Advance) -> None:
        """See `EngineFile`."""
        places = places_of(order)
        header = self._header.copy()
        header["entry"] = places[self._entry]
        file.write(header.tobytes())
        step = STEP_BYTES // self.row_bytes
        for chosen in parts(order, step):
            rows = gathered(self._vertices, chosen)
            links = _renumbered(_as_lists(rows, self.lists.width), places)
            rows[:, : 4 * links.shape[1]] = links.view(np.uint8)
            file.write(rows.data)
            advance(len(chosen))
        for chosen in parts(order, step):
            file.write(self._records_of(chosen, places).data)
            advance(len(chosen))

    def _check_header(self, field: dict[str, int]) -> None:
        width, width_0 = field["width"], field["width_0"]
        check_width(self.path, width_0, "places on level 0")
        check_width(self.path, width, "places on higher levels")
        lists_bytes = 4 * (width_0 + 1)
        expected = {
            "level0_at": (0, field["level0_at"] == 0),
            "n": (f"1 to the room, {field['room']:,}", 1 <= field["n"] <= min(field["room"], 2**32 - 2)),
            "vector_at": (lists_bytes, field["vector_at"] == lists_bytes),
            "label_at": (f"more than {lists_bytes}", field["label_at"] > lists_bytes),
            "vertex_bytes": (
                field["label_at"] + _LABEL_BYTES, field["vertex_bytes"] == field["label_at"] + _LABEL_BYTES
            ),
            "top": ("a level", field["top"] >= 0),
        }  # fmt: skip
        for name, (value, holds) in expected.items():
            if not holds:
                raise damaged(self.path, f"header of hnswlib, {name}", value, f"{field[name]:,}")
        check_entry(self.path, "header of hnswlib, entry", field["entry"], field["n"])

    def _record_offsets(self) -> NDArray[np.int64]:
        """Return where the lists of higher levels of each vertex begin, and the end of the last; int64 (n + 1,).

        They are a size, u32, and as many bytes.
        """
        at, offsets = HEADER.itemsize + self._vertices.nbytes, np.empty(self.n + 1, np.int64)
        sound = _walk(self._bytes, at, self._list_bytes, self._top, offsets)
        at = int(offsets[sound])
        if sound < self.n and at + 4 > self.size:
            raise damaged(self.path, f"vertex {sound:,}: higher levels", "a size", "the end of the file")
        if sound < self.n:
            expected = f"up to {self._top:,} lists of {self._list_bytes:,} bytes"
            got = f"{int(self._bytes[at : at + 4].view('<u4')[0]):,} bytes"
            raise damaged(self.path, f"vertex {sound:,}, at byte {at:,}: higher levels", expected, got)
        if at != self.size:
            raise damaged(self.path, "size of the file", f"{at:,} bytes by its lists", f"{self.size:,}")
        return offsets

    def _levels(self, vertices: NDArray[Any]) -> NDArray[np.int64]:
        """Return how many levels above the lowest each vertex has."""
        found: NDArray[np.int64] = self._records[vertices + 1] - self._records[vertices]
        return found // self._list_bytes  # 4 bytes more are no list

    def _records_of(self, chosen: NDArray[np.uint32], places: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the renumbered lists of vertices' higher levels, each vertex's behind their size, as uint32 words."""
        levels = self._levels(chosen)
        owner = np.repeat(np.arange(len(chosen)), levels)
        level = np.arange(len(owner)) - np.repeat(np.cumsum(levels) - levels, levels)
        from_byte = self._records[chosen[owner]] + 4 + level * self._list_bytes
        lists = _as_lists(self._bytes[from_byte[:, None] + np.arange(self._list_bytes)], self._width)
        self._check_lists(lists, level, chosen[owner])
        words = self._list_bytes // 4
        begins = np.cumsum(1 + levels * words) - 1 - levels * words
        record = np.zeros(len(chosen) + len(owner) * words, np.uint32)
        record[begins] = levels * self._list_bytes
        record[(begins[owner] + 1 + level * words)[:, None] + np.arange(words)] = _renumbered(lists, places)
        return record

    def _check_lists(
        self, lists: NDArray[np.uint32], level: NDArray[Any], vertices: NDArray[np.uint32]
    ) -> None:
        """Check lists of higher levels, above the lowest by 1 + `level`, of `vertices`; both (lists,)."""
        lengths = lists[:, 0] & _LENGTH
        long = lengths > self._width
        if long.any():
            where = f"vertex {vertices[np.argmax(long)]:,}: list on a higher level"
            raise damaged(self.path, where, f"0 to {self._width}", lengths[np.argmax(long)])
        row, column = np.nonzero(np.arange(self._width) < lengths[:, None])
        named = lists[row, 1 + column].astype(np.int64)
        wrong = named >= self.n
        wrong[~wrong] = self._levels(named[~wrong]) <= level[row[~wrong]]
        if wrong.any():
            where = f"vertex {vertices[row[np.argmax(wrong)]]:,}: neighbour on a higher level"
            raise damaged(self.path, where, "a vertex of that level", f"{named[np.argmax(wrong)]:,}")


@kernel
def _walk(raw: Any, at: int, list_bytes: int, top: int, offsets: Any) -> Any:  # pragma: no cover - compiled
    """Write where the lists of each vertex begin, up to one whose size cannot be; return that vertex, or the number."""
    for vertex in range(offsets.size - 1):
        offsets[vertex] = at
        if at + 4 > raw.size:
            return vertex
        size: Any = np.int64(0)
        for i in range(4):
            size += np.int64(raw[at + i]) << (8 * i)
        if size % list_bytes or size // list_bytes > top:
            return vertex
        at += 4 + size
    offsets[offsets.size - 1] = at
    return offsets.size - 1


def _as_lists(rows: NDArray[np.uint8], width: int) -> NDArray[np.uint32]:
    """Return the lists that rows, uint8 (m, ...), begin with: length and marks, then places; uint32 (m, 1 + width)."""
    return np.ascontiguousarray(rows[:, : 4 * (width + 1)]).view("<u4")


def _renumbered(lists: NDArray[np.uint32], places: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return lists with their vertices at `places`; what stands behind the end of a list becomes 0."""
    inside = np.arange(lists.shape[1] - 1) < (lists[:, :1] & _LENGTH)
    links = np.where(inside, lists[:, 1:], 0)
    return np.hstack([lists[:, :1], np.where(inside, places[links], np.uint32(0))])
