"""Numbers of an LSH index and what follows from them: table entries, pointers, bucket blocks (docs/formats/lsh.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from indexmill.formats.pagefile.frame import PAGE_BYTES, corrupt
from indexmill.formats.pagefile.reader import PageFile

BLOCK_BYTES = (128, 256, 512, 1024, 2048, 4096)
HEADER_BYTES, ENTRY_BYTES = 16, 5
ENTRY_BITS, HASH_BITS = 40, 32
#: A pointer: offset of a block in its lower bits, above them how many blocks of the chain lie there without a gap.
OFFSET_BITS = 48
MOST_RUN = 2**16 - 1
MOST_TABLES, MOST_RADII, MOST_FUNCTIONS = 2**16 - 1, 256, 256
#: Bits that choose a bucket, at most.
MOST_HASH_BITS = 31
#: Buckets of one radius that a search looks at, and further buckets of a table, at most: the reader lists no more.
MOST_TARGETS, MOST_PROBES = 1 << 18, 2**16 - 1


@dataclass(frozen=True)
class LshShape:
    """How many of everything an LSH index has.

    Attributes
    ----------
    n_vectors : int
        n, below 2^32.
    n_tables, n_radii : int
        L compound hashes for each of r radii.
    hash_bits : int
        u: a table has 2^u buckets.
    block_bytes : int
        B, of a bucket block.
    """

    n_vectors: int
    n_tables: int
    n_radii: int
    hash_bits: int
    block_bytes: int

    def __post_init__(self) -> None:
        limits = {
            "n_vectors": 2**32 - 1,
            "n_tables": MOST_TABLES,
            "n_radii": MOST_RADII,
        }
        for name, most in limits.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name}: 1..{most}, not {getattr(self, name)}")
        if not 0 <= self.hash_bits <= MOST_HASH_BITS:
            raise ValueError(f"hash_bits: 0..{MOST_HASH_BITS}, not {self.hash_bits}")
        if self.block_bytes not in BLOCK_BYTES:
            raise ValueError(f"block_bytes: one of {BLOCK_BYTES}, not {self.block_bytes}")

    @property
    def id_bits(self) -> int:
        """Bits of a slot in an entry."""
        return max(1, (self.n_vectors - 1).bit_length())

    @property
    def fingerprint_bits(self) -> int:
        """Bits of a hash, beside those that choose the bucket, that an entry keeps."""
        return min(HASH_BITS - self.hash_bits, ENTRY_BITS - self.id_bits)

    @property
    def capacity(self) -> int:
        """Entries of a full block."""
        return block_capacity(self.block_bytes)

    @property
    def buckets_per_table(self) -> int:
        """2^u."""
        return 1 << self.hash_bits

    @property
    def n_pointers(self) -> int:
        """Buckets of all tables, the empty ones too."""
        return self.n_radii * self.n_tables << self.hash_bits

    @property
    def bitmap_bytes(self) -> int:
        """Bytes of the occupancy bitmap."""
        return -(-self.n_pointers // 8)

    @property
    def n_entries(self) -> int:
        """Entries of all tables."""
        return self.n_vectors * self.n_tables * self.n_radii

    def fields(self) -> Mapping[str, int]:
        """Return the header fields that tables.imx and buckets.imx share."""
        names = ("n_vectors", "n_tables", "n_radii", "hash_bits")
        return {name: getattr(self, name) for name in names}

    def check_fields(self, file: PageFile, *more: str) -> None:
        """Raise `CorruptFile` unless the fields of `file` say the same."""
        for name in (*self.fields(), *more):
            value = int(getattr(self, name))
            got = file.field(name)
            if got != value:
                raise corrupt(file.path, f"field {name!r}", f"{value} as in functions.imx", got)


def block_capacity(block_bytes: int) -> int:
    """Return the entries of a full block."""
    return (block_bytes - HEADER_BYTES) // ENTRY_BYTES


def most_probes(n_tables: int) -> int:
    """Return the further buckets of each of `n_tables` tables that a search can look at."""
    return min(MOST_PROBES, MOST_TARGETS // n_tables - 1)


def first_offset() -> int:
    """Return where the first block lies in buckets.imx."""
    return PAGE_BYTES


def pointers_to(blocks: np.ndarray, lengths: np.ndarray, block_bytes: int) -> np.ndarray:
    """Return pointers to block numbers `blocks` from which `lengths` blocks follow each other; 0 for no length."""
    run = np.minimum(lengths, MOST_RUN).astype(np.uint64)
    offset = np.uint64(first_offset()) + blocks.astype(np.uint64) * np.uint64(block_bytes)
    return np.where(lengths > 0, run << np.uint64(OFFSET_BITS) | offset, np.uint64(0))
