"""Tables: the pointer to the chain of each bucket, and a bitmap of occupied buckets (docs/formats/lsh.md).

tables.imx has a pointer for every bucket. Added tables have few occupied buckets, so added-tables.imx has the pointers
of those alone: the pointer of a bucket is found by counting the bits of the bitmap before its own.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.lsh.shape import LshShape
from indexmill.formats.pagefile.frame import PAGE_BYTES, corrupt
from indexmill.formats.pagefile.reader import KindFile, PageFile
from indexmill.formats.pagefile.writer import PageFileWriter

KIND = "LSHT"
#: Pointers read or written at a time: whole pages of pointers and of bits.
_BLOCK = 1 << 19


def write_tables(path: str | Path, shape: LshShape, pointers: NDArray[np.uint64]) -> None:
    """Write tables.imx, or added-tables.imx where `shape` is that of added tables. Memory: blocks of 4 MiB.

    Parameters
    ----------
    pointers : uint64 array, shape (n_radii, n_tables, 2^u)
        0 where a bucket is empty. May be a mapped file.

    Raises
    ------
    ValueError
        If there are more or fewer pointers.
    """
    flat = pointers.reshape(-1)
    if len(flat) != shape.n_pointers:
        raise ValueError(f"pointers: {shape.n_pointers}, not {len(flat)}")
    blocks = [flat[first : first + _BLOCK] for first in range(0, len(flat), _BLOCK)]
    n_buckets = sum(int(np.count_nonzero(block)) for block in blocks)
    with PageFileWriter(path, KIND, {**shape.fields(), "n_buckets": n_buckets}) as file:
        with file.section("pointers") as section:
            for block in blocks:
                stored = block[block != 0] if shape.is_added else block
                if len(stored):
                    section.write(np.ascontiguousarray(stored, "<u8"))
        with file.section("occupied") as section:
            for block in blocks:
                section.write(np.packbits(block != 0, bitorder="little"))


class TablesFile(KindFile):
    """An opened tables.imx or added-tables.imx; pages are checked as they are read.

    Memory: of added tables, the bitmap once their pointers are read.

    Raises
    ------
    FormatError
        If the file is not an intact file of the tables of that shape.
    """

    kind = KIND

    def __init__(self, path: str | Path, shape: LshShape, build_id: bytes | None = None) -> None:
        self.shape = shape
        super().__init__(path, build_id)

    def _read_fields(self, file: PageFile) -> None:
        self.shape.check_fields(file)
        self.n_buckets = file.field("n_buckets", 1, self.shape.n_pointers)
        stored = self.n_buckets if self.shape.is_added else self.shape.n_pointers
        file.payload_bytes("pointers", 8 * stored)
        file.payload_bytes("occupied", self.shape.bitmap_bytes)

    def pointers(self, first: int, count: int) -> NDArray[np.uint64]:
        """Return the pointers of `count` buckets from entry `first` on, 0 where a bucket is empty.

        Raises
        ------
        CorruptFile
            If a page's CRC differs, or added tables have another number of pointers than of occupied buckets.
        """
        if not self.shape.is_added:
            return self._stored(first, count)
        occupied = self._bits(first, count)
        found = np.zeros(count, "<u8")
        found[occupied] = self._stored(self._place(first), int(np.count_nonzero(occupied)))
        return found

    def pointer(self, radius: int, table: int, bucket: int) -> int:
        """Return the pointer of one bucket."""
        entry = (radius * self.shape.n_tables + table << self.shape.hash_bits) + bucket
        return int(self.pointers(entry, 1)[0])

    def occupied(self) -> NDArray[np.uint8]:
        """Return the bitmap of occupied buckets, uint8, lowest bit first."""
        return np.frombuffer(self.file.section("occupied"), np.uint8)

    def all_pointers(self) -> NDArray[np.uint64]:
        """Return all pointers, checked against the bitmap.

        Raises
        ------
        CorruptFile
            At the first bucket where pointers and bitmap disagree.
        """
        pointers = self.pointers(0, self.shape.n_pointers)
        bits = np.unpackbits(self.occupied(), bitorder="little")
        stated = bits[: len(pointers)].astype(bool)
        bad = np.flatnonzero(stated != (pointers != 0))
        if len(bad):
            e = int(bad[0])
            words = {True: "a bucket with entries", False: "an empty bucket"}
            raise corrupt(
                self.path,
                f"entry {e}",
                f"{words[bool(stated[e])]} as in the bitmap",
                f"pointer {pointers[e]}",
            )
        if bits[len(pointers) :].any():
            raise corrupt(self.path, "section 'occupied'", "zeros behind the last entry", "a bit that is set")
        if np.count_nonzero(pointers) != self.n_buckets:
            raise corrupt(self.path, "field 'n_buckets'", self.n_buckets, np.count_nonzero(pointers))
        return pointers

    def _stored(self, first: int, count: int) -> NDArray[np.uint64]:
        """Return `count` pointers of section ``pointers`` from its pointer `first` on."""
        page = 8 * first // PAGE_BYTES
        pages = -(-8 * (first + count) // PAGE_BYTES) - page if count else 0
        skip = first - page * PAGE_BYTES // 8
        return np.frombuffer(self.file.read_pages("pointers", page, pages), "<u8")[skip : skip + count]

    def _bits(self, first: int, count: int) -> NDArray[np.bool_]:
        """Return whether each of `count` buckets from entry `first` on is occupied."""
        start, skip = divmod(first, 8)
        bits = np.unpackbits(self._bitmap[start : -(-(first + count) // 8)], bitorder="little")
        return bits[skip : skip + count].astype(np.bool_)

    def _place(self, entry: int) -> int:
        """Return how many buckets before an entry are occupied: where its pointer is in section ``pointers``."""
        page, rest = divmod(entry, 8 * PAGE_BYTES)
        bits = np.unpackbits(
            self._bitmap[page * PAGE_BYTES : (page + 1) * PAGE_BYTES], count=rest, bitorder="little"
        )
        return int(self._before[page] + np.count_nonzero(bits))

    @cached_property
    def _bitmap(self) -> NDArray[np.uint8]:
        return self.occupied()

    @cached_property
    def _before(self) -> NDArray[np.int64]:
        """Occupied buckets before each page of the bitmap."""
        pages = np.arange(0, len(self._bitmap), PAGE_BYTES)
        counts = np.add.reduceat(np.bitwise_count(self._bitmap), pages, dtype=np.int64)
        total = int(counts.sum())
        if total != self.n_buckets:
            raise corrupt(self.path, "section 'occupied'", f"{self.n_buckets} bits that are set", total)
        return np.cumsum(counts) - counts
