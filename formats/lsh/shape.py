"""Sizes of an LSH index, and of its table entries, pointers and bucket blocks (docs/formats/lsh.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from indexmill.formats.pagefile.frame import PAGE_BYTES, corrupt
from indexmill.formats.pagefile.reader import PageFile

BLOCK_BYTES = (128, 256, 512, 1024, 2048, 4096)
#: Block size of added tables, whatever that of the others: most of their buckets hold a few entries.
ADDED_BLOCK_BYTES = 128
HEADER_BYTES, ENTRY_BYTES = 16, 5
ENTRY_BITS, HASH_BITS = 40, 32
#: Lowest bits of a pointer, which hold the offset of a block; the others hold its run, the blocks without a gap there.
OFFSET_BITS = 48
MOST_RUN = 2**16 - 1
MOST_TABLES, MOST_RADII, MOST_FUNCTIONS = 2**16 - 1, 256, 256
#: Most bits that choose a bucket.
MOST_HASH_BITS = 31
#: Most buckets of a radius, and most further buckets of a table, that the reader visits.
MOST_TARGETS, MOST_PROBES = 1 << 18, 2**16 - 1


@dataclass(frozen=True)
class LshShape:
    """Sizes of an LSH index, or of one of its pairs of files of tables and buckets.

    Attributes
    ----------
    n_vectors : int
        n, below 2^32.
    n_tables, n_radii : int
        L tables for each of r radii.
    hash_bits : int
        u; a table has 2^u buckets.
    block_bytes : int
        B, the size of a bucket block.
    first_slot : int
        First slot whose entries the tables hold; above 0 for added tables alone.
    """

    n_vectors: int
    n_tables: int
    n_radii: int
    hash_bits: int
    block_bytes: int
    first_slot: int = 0

    def __post_init__(self) -> None:
        limits = {
            "n_vectors": 2**32 - 1,
            "n_tables": MOST_TABLES,
            "n_radii": MOST_RADII,
        }
        for name, most in limits.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name}: 1..{most}, not {getattr(self, name)}")
        if not 0 <= self.first_slot < self.n_vectors:
            raise ValueError(f"first_slot: 0..{self.n_vectors - 1}, not {self.first_slot}")
        if not 0 <= self.hash_bits <= MOST_HASH_BITS:
            raise ValueError(f"hash_bits: 0..{MOST_HASH_BITS}, not {self.hash_bits}")
        if self.block_bytes not in BLOCK_BYTES:
            raise ValueError(f"block_bytes: one of {BLOCK_BYTES}, not {self.block_bytes}")

    def beside(self, n_vectors: int) -> LshShape:
        """Return the shape of added tables that go on where these end, up to `n_vectors` vectors."""
        return LshShape(
            n_vectors, self.n_tables, self.n_radii, self.hash_bits, ADDED_BLOCK_BYTES, self.n_vectors
        )

    @property
    def is_added(self) -> bool:
        """Whether these are added tables, beside those of the first slots."""
        return self.first_slot > 0

    @property
    def n_covered(self) -> int:
        """Vectors whose entries the tables hold."""
        return self.n_vectors - self.first_slot

    @property
    def id_bits(self) -> int:
        """Bits of a slot in an entry."""
        return max(1, (self.n_vectors - 1).bit_length())

    @property
    def fingerprint_bits(self) -> int:
        """Bits of a hash in an entry, besides those that choose the bucket."""
        return min(HASH_BITS - self.hash_bits, ENTRY_BITS - self.id_bits)

    @property
    def capacity(self) -> int:
        """Entries of a full block."""
        return block_capacity(self.block_bytes)

    @property
    def buckets_per_table(self) -> int:
        """Number of buckets of a table, 2^u."""
        return 1 << self.hash_bits

    @property
    def n_pointers(self) -> int:
        """Buckets of all tables, including empty ones."""
        return self.n_radii * self.n_tables << self.hash_bits

    @property
    def bitmap_bytes(self) -> int:
        """Bytes of the occupancy bitmap."""
        return -(-self.n_pointers // 8)

    @property
    def n_entries(self) -> int:
        """Entries of all tables."""
        return self.n_covered * self.n_tables * self.n_radii

    def fields(self) -> Mapping[str, int]:
        """Return the header fields that files of tables and of buckets share."""
        names = ("n_vectors", "n_tables", "n_radii", "hash_bits")
        fields = {name: getattr(self, name) for name in names}
        return fields | ({"first_slot": self.first_slot} if self.is_added else {})

    def check_fields(self, file: PageFile, *more: str) -> None:
        """Raise `CorruptFile` unless the fields of `file` agree with these sizes."""
        for name in (*self.fields(), *more):
            value = int(getattr(self, name))
            got = file.field(name)
            if got != value:
                raise corrupt(file.path, f"field {name!r}", f"{value} as the rest of the index says", got)


def block_capacity(block_bytes: int) -> int:
    """Return the number of entries of a full block."""
    return (block_bytes - HEADER_BYTES) // ENTRY_BYTES


def most_probes(n_tables: int) -> int:
    """Return the most further buckets of each of `n_tables` tables that a search can visit."""
    return min(MOST_PROBES, MOST_TARGETS // n_tables - 1)


def first_offset() -> int:
    """Return the offset of the first block in buckets.imx."""
    return PAGE_BYTES


def pointers_to(blocks: np.ndarray, lengths: np.ndarray, block_bytes: int) -> np.ndarray:
    """Return pointers to runs of `lengths` consecutive blocks from numbers `blocks` on; 0 for length 0."""
    run = np.minimum(lengths, MOST_RUN).astype(np.uint64)
    offset = np.uint64(first_offset()) + blocks.astype(np.uint64) * np.uint64(block_bytes)
    return np.where(lengths > 0, run << np.uint64(OFFSET_BITS) | offset, np.uint64(0))
