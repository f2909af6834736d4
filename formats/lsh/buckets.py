"""buckets.imx and added-buckets.imx: chains of bucket blocks (docs/formats/lsh.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import CorruptFile
from indexmill.formats.lsh.blocks import bad_checksums, counts_of, entries_of, next_of
from indexmill.formats.lsh.shape import OFFSET_BITS, LshShape, first_offset
from indexmill.formats.pagefile.frame import PAGE_BYTES, corrupt
from indexmill.formats.pagefile.reader import KindFile, PageFile
from indexmill.formats.pagefile.writer import PageFileWriter, SectionWriter

KIND = "LSHB"
_SAME = ("id_bits", "fingerprint_bits", "block_bytes")


class BucketsWriter:
    """Writes sealed blocks, in pieces of any size; `writing_buckets` makes it.

    Attributes
    ----------
    n_blocks, longest_chain : int
        So far; the caller keeps the second.
    """

    def __init__(self, section: SectionWriter, block_bytes: int) -> None:
        self._section, self._block_bytes = section, block_bytes
        self.longest_chain = 0

    @property
    def n_blocks(self) -> int:
        """Blocks so far."""
        return self._section.payload_bytes // self._block_bytes

    def write(self, blocks: NDArray[np.uint8]) -> None:
        """Append sealed `blocks`, uint8 (m, block_bytes)."""
        self._section.write(blocks)


@contextmanager
def writing_buckets(path: str | Path, shape: LshShape) -> Iterator[BucketsWriter]:
    """Write a file of buckets piece by piece inside the block; if that raises, no file remains."""
    fields = dict(shape.fields()) | {name: getattr(shape, name) for name in _SAME}
    fields |= {"n_blocks": 0, "n_entries": shape.n_entries, "longest_chain": 0}
    with PageFileWriter(path, KIND, fields) as file:
        with file.section("blocks") as section:
            writer = BucketsWriter(section, shape.block_bytes)
            yield writer
        file.state("n_blocks", writer.n_blocks)
        file.state("longest_chain", writer.longest_chain)


def write_buckets(
    path: str | Path, shape: LshShape, n_blocks: int, longest_chain: int, blocks: Iterable[NDArray[np.uint8]]
) -> None:
    """Write buckets.imx from `n_blocks` sealed blocks, in pieces uint8 (m, block_bytes).

    Raises
    ------
    ValueError
        If there are more or fewer blocks.
    """
    with writing_buckets(path, shape) as file:
        file.longest_chain = longest_chain
        for piece in blocks:
            file.write(piece)
        if file.n_blocks != n_blocks:
            raise ValueError(f"blocks: {n_blocks}, not {file.n_blocks}")


class BucketsFile(KindFile):
    """An opened buckets.imx or added-buckets.imx; all data read is checked.

    Attributes
    ----------
    n_blocks, longest_chain : int

    Raises
    ------
    FormatError
        If the file is not an intact file of the buckets of that shape.
    """

    kind = KIND

    def __init__(self, path: str | Path, shape: LshShape, build_id: bytes | None = None) -> None:
        self.shape = shape
        super().__init__(path, build_id)

    def _read_fields(self, file: PageFile) -> None:
        self.shape.check_fields(file, *_SAME, "n_entries")
        self.n_blocks = file.field("n_blocks", 1, self.shape.n_entries)
        self.longest_chain = file.field("longest_chain", 1, self.n_blocks)
        file.payload_bytes("blocks", self.n_blocks * self.shape.block_bytes)

    def read(self, first: int, count: int) -> NDArray[np.uint8]:
        """Return `count` blocks from block `first` on, uint8 (count, block_bytes), checked except for their pointers.

        Raises
        ------
        CorruptFile
            If the checksum of a page or a block differs, or a count or a slot is out of range.
        """
        blocks = self.read_counted(first, count)
        bad = bad_checksums(blocks)
        if len(bad):
            raise self.corrupt(first + int(bad[0]), "CRC32C", "that of its bytes", "another")
        self.check_slots(first, blocks)
        return blocks

    def read_counted(self, first: int, count: int) -> NDArray[np.uint8]:
        """Return `count` blocks from block `first` on; only the checksums of pages and the counts are checked."""
        size = self.shape.block_bytes
        page = first * size // PAGE_BYTES
        pages = -(-(first + count) * size // PAGE_BYTES) - page
        skip = first * size - page * PAGE_BYTES
        data = self.file.read_pages("blocks", page, pages)[skip : skip + count * size]
        blocks = np.frombuffer(data, np.uint8).reshape(count, size)
        counts = counts_of(blocks)
        bad = np.flatnonzero((counts < 1) | (counts > self.shape.capacity))
        if len(bad):
            raise self.corrupt(first + int(bad[0]), "count", f"1..{self.shape.capacity}", counts[bad[0]])
        return blocks

    def check_slots(self, first: int, blocks: NDArray[np.uint8]) -> None:
        """Check the slots of `blocks`, the first of which has the number `first`.

        Raises
        ------
        CorruptFile
            If one is out of range.
        """
        slots, _ = self.split(entries_of(blocks))
        least, end = self.shape.first_slot, self.shape.n_vectors
        bad = np.flatnonzero((slots < least) | (slots >= end))
        if len(bad):
            block = first + int(np.searchsorted(np.cumsum(counts_of(blocks)), bad[0], side="right"))
            expected = f"{least}..{end - 1}" if least else f"below {end}"
            raise self.corrupt(block, "slot", expected, slots[bad[0]])

    def split(self, entries: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the slots and the fingerprints of `entries`."""
        bits = np.uint64(self.shape.id_bits)
        return entries & (np.uint64(1) << bits) - np.uint64(1), entries >> bits

    def block_number(self, pointer: int, where: str) -> int:
        """Return the number of the block that `pointer`, found at `where`, leads to.

        Raises
        ------
        CorruptFile
            If no block starts there, or its run exceeds the section.
        """
        size = self.shape.block_bytes
        offset, run = pointer & (1 << OFFSET_BITS) - 1, pointer >> OFFSET_BITS
        number, rest = divmod(offset - first_offset(), size)
        if rest or not 0 <= number < self.n_blocks:
            raise corrupt(self.path, where, "the offset of a block", f"{offset}")
        if not 1 <= run <= self.n_blocks - number:
            raise corrupt(self.path, where, f"a run of 1..{self.n_blocks - number} blocks", f"{run}")
        return int(number)

    def chain(self, pointer: int, where: str = "a pointer") -> NDArray[np.uint64]:
        """Return the entries of the chain that `pointer`, not 0, leads to.

        Raises
        ------
        CorruptFile
            If a block is damaged, or a pointer does not lead to a later block, so that a cycle never loops.
        """
        number = self.block_number(pointer, where)
        entries = []
        while True:
            block = self.read(number, 1)
            entries.append(entries_of(block))
            pointer = int(next_of(block)[0])
            if not pointer:
                return np.concatenate(entries)
            after = self.block_number(pointer, f"{self.name(number)}: next pointer")
            if after <= number:
                raise self.corrupt(
                    number, "next pointer", "a block further on (else a cycle)", self.name(after)
                )
            number = after

    def name(self, block: int) -> str:
        """Return the name of block number `block` in errors."""
        return f"block {block} (offset {first_offset() + block * self.shape.block_bytes})"

    def corrupt(self, block: int, what: str, expected: object, got: object) -> CorruptFile:
        """Return the error for damage in block number `block`."""
        return corrupt(self.path, f"{self.name(block)}: {what}", expected, got)
