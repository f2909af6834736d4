"""Inverted lists of a faiss file, in the file itself or in another one next to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.imports.faiss_file import FaissFile
from indexmill.formats.imports.mapped import MappedFile, damaged, not_such_a_file

_IN_FILE, _ON_DISK = "ilar", "ilod"
#: Bytes of an id.
_ID = 8


class InvertedLists:
    """Mapped inverted lists.

    Attributes
    ----------
    sizes : int64 array, shape (n_lists,)
    row_bytes : int
        Bytes of a row and its id.
    path : Path
        The file that holds the lists.
    files : tuple of Path
        Other files that hold lists.

    Raises
    ------
    CorruptFile
        If the numbers in `file`, which is read up to the end of the lists, are inconsistent.
    ForeignFile
        If lists are stored in an unsupported way.
    InputError
        If the file of the lists is missing.
    """

    def __init__(self, file: FaissFile, n_lists: int, code_bytes: int, n: int) -> None:
        begin = file.at
        kind = file.name("kind of the lists")
        if kind not in (_IN_FILE, _ON_DISK):
            expected = f"lists in the file ({_IN_FILE}) or on the disk ({_ON_DISK})"
            action = "write an index that holds its lists"
            raise not_such_a_file(file.path, f"byte {begin}: kind of the lists", expected, repr(kind), action)
        found = file.number("<u8", "number of lists"), file.number("<u8", "bytes of a code")
        if found != (n_lists, code_bytes):
            got = f"{found[0]:,} lists of {found[1]:,} bytes a row"
            raise damaged(file.path, f"byte {begin + 4}: lists", f"{n_lists:,} of {code_bytes:,}", got)
        self._code_bytes = code_bytes
        self.row_bytes = code_bytes + _ID
        self.path = file.path
        self.files: tuple[Path, ...] = ()
        if kind == _IN_FILE:
            self._in_file(file, n_lists)
        else:
            self._on_disk(file, n_lists)
        if int(self.sizes.sum()) != n:
            where = f"byte {begin}: sizes of the lists"
            raise damaged(file.path, where, f"{n:,} in all", f"{int(self.sizes.sum()):,}")

    def _in_file(self, file: FaissFile, n_lists: int) -> None:
        begin = file.at
        kind = file.name("how sizes are written")
        numbers = file.vector("<u8", "sizes of the lists").astype(np.uint64)
        if kind == "full":
            sizes = numbers
        elif kind == "sprs" and not len(numbers) % 2:
            lists, list_sizes = numbers[::2], numbers[1::2]
            if len(lists) and int(lists.max()) >= n_lists:
                raise damaged(
                    file.path, f"byte {begin}: lists", f"numbers below {n_lists:,}", int(lists.max())
                )
            sizes = np.zeros(n_lists, np.uint64)
            sizes[lists.astype(np.int64)] = list_sizes
        else:
            raise damaged(file.path, f"byte {begin}: how sizes are written", "'full' or 'sprs'", repr(kind))
        self._set_sizes(file, sizes, n_lists, file.left)
        lengths = self.sizes * self.row_bytes
        self._begins = file.at + np.cumsum(lengths) - lengths
        self._rooms = self.sizes
        self._bytes = file.peek(np.uint8, int(lengths.sum()), "lists")
        self._origin = file.at
        file.at += len(self._bytes)

    def _on_disk(self, file: FaissFile, n_lists: int) -> None:
        table = file.vector("<u8", "places of the lists: numbers", 3).reshape(-1, 3)
        file.vector("<u8", "free places: numbers", 2)
        name = bytes(file.vector(np.uint8, "name of the file of the lists")).decode("utf-8", "replace")
        size = file.number("<u8", "size of the file of the lists")
        beside = file.path.parent / Path(name).name  # as with IO_FLAG_ONDISK_SAME_DIR: files may have moved
        mapped = MappedFile(beside)
        if mapped.size < size:
            raise damaged(beside, "size of the file", f"{size:,} bytes", f"{mapped.size:,}")
        self.path, self.files = beside, (beside,)
        self._set_sizes(file, table[:, 0], n_lists, mapped.size)
        rooms, begins = table[:, 1], table[:, 2]
        row = np.uint64(self.row_bytes)
        full = self.sizes > 0
        wrong = full & ((rooms < table[:, 0]) | (rooms > mapped.size // row) | (begins > mapped.size))
        wrong |= full & (np.where(wrong, 0, begins) + np.where(wrong, 0, rooms) * row > mapped.size)
        if wrong.any():
            number = int(np.argmax(wrong))
            got = f"room for {rooms[number]:,} rows from byte {begins[number]:,} on"
            raise damaged(beside, f"list {number}", f"a place within {mapped.size:,} bytes", got)
        self._begins, self._rooms = begins.astype(np.int64), rooms.astype(np.int64)
        self._bytes, self._origin = mapped.array(0, np.uint8, mapped.size, "lists"), 0

    def _set_sizes(self, file: FaissFile, sizes: NDArray[np.uint64], n_lists: int, most_bytes: int) -> None:
        if len(sizes) != n_lists:
            raise damaged(file.path, "sizes of the lists", f"{n_lists:,}", f"{len(sizes):,}")
        most = most_bytes // self.row_bytes
        if int(sizes.max()) > most:
            number = int(np.argmax(sizes))
            raise damaged(
                file.path, f"size of list {number}", f"at most {most:,} rows", f"{int(sizes[number]):,}"
            )
        self.sizes = sizes.astype(np.int64)

    def names(self, number: int) -> NDArray[np.int64]:
        """Return faiss's ids of the vectors of a list, int64 (size,)."""
        at = int(self._begins[number] - self._origin + self._rooms[number] * self._code_bytes)
        found: NDArray[np.int64] = self._bytes[at : at + int(self.sizes[number]) * _ID].view("<i8")
        return found

    def codes(self, number: int, chosen: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the codes at the `chosen` places of a list, uint8 (m, code_bytes)."""
        at = int(self._begins[number] - self._origin)
        codes = self._bytes[at : at + int(self.sizes[number]) * self._code_bytes]
        found: NDArray[np.uint8] = codes.reshape(-1, self._code_bytes)[chosen]
        return found

    def spans(self, number: int) -> list[tuple[int, int]]:
        """Return offset and length of a list's codes, and of its ids, in the file that holds the lists."""
        begin, room, size = int(self._begins[number]), int(self._rooms[number]), int(self.sizes[number])
        return [(begin, size * self._code_bytes), (begin + room * self._code_bytes, size * _ID)]
