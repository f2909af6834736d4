"""tables.imx: the pointer to the chain of each bucket, and a bitmap of occupied buckets (docs/formats/lsh.md)."""

from __future__ import annotations

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
    """Write tables.imx. Memory: blocks of 4 MiB.

    Parameters
    ----------
    pointers : uint64 array, shape (n_radii, n_tables, 2^u)
        May be a mapped file.

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
                section.write(np.ascontiguousarray(block, "<u8"))
        with file.section("occupied") as section:
            for block in blocks:
                section.write(np.packbits(block != 0, bitorder="little"))


class TablesFile(KindFile):
    """An opened tables.imx; pages are checked as they are read.

    Raises
    ------
    FormatError
        If the file is not an intact tables.imx of an index of that shape.
    """

    kind = KIND

    def __init__(self, path: str | Path, shape: LshShape, build_id: bytes | None = None) -> None:
        self.shape = shape
        super().__init__(path, build_id)

    def _read_fields(self, file: PageFile) -> None:
        self.shape.check_fields(file)
        self.n_buckets = file.field("n_buckets", 1, self.shape.n_pointers)
        file.payload_bytes("pointers", 8 * self.shape.n_pointers)
        file.payload_bytes("occupied", self.shape.bitmap_bytes)

    def pointers(self, first: int, count: int) -> NDArray[np.uint64]:
        """Return `count` entries of section ``pointers`` from entry `first` on."""
        page = 8 * first // PAGE_BYTES
        pages = -(-8 * (first + count) // PAGE_BYTES) - page if count else 0
        skip = first - page * PAGE_BYTES // 8
        return np.frombuffer(self.file.read_pages("pointers", page, pages), "<u8")[skip : skip + count]

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
