"""Files of tables and of their buckets, written front to back from the sorted entries of all their parts.

The chains are those that a build of the same vectors with the same hash functions lays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lsh.rechain import MOST_BUCKETS, Packed, packed
from indexmill.formats.lsh.blocks import seal_blocks
from indexmill.formats.lsh.buckets import writing_buckets
from indexmill.formats.lsh.names import names_of
from indexmill.formats.lsh.shape import LshShape, pointers_to
from indexmill.formats.lsh.tables import write_tables
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.generations.tables.parts import Part
from indexmill.pipeline.mill.ahead import read_ahead

#: Entries of a piece, about: a piece is sorted and packed in memory.
PIECE_ENTRIES = 1 << 20
#: Bytes of an entry of a piece: keys of all parts, twice, and sorted; and the blocks that hold it, twice.
_ENTRY_BYTES = 88
#: Bytes of a bucket of a table: pointers, lengths and ends of each part, and those that are written.
_BUCKET_BYTES = 80


class _Piece(NamedTuple):
    """Buckets `first` to `last` of one table, and the keys of their entries, of one part after the other."""

    table: int
    radius: int
    first: int
    last: int
    keys: NDArray[np.uint64]


class Chains:
    """The chains of tables of `shape`, made of `parts`.

    Parameters
    ----------
    shape : LshShape
    parts : sequence of Part

    Attributes
    ----------
    chain_blocks : float
        Blocks of the chain that an entry of the first radius lies in, on average; far radii have long chains anyway.
    """

    def __init__(self, shape: LshShape, parts: Sequence[Part]) -> None:
        self._shape, self._parts = shape, parts
        self._buckets, self._blocks, self._longest = ([0] * shape.n_radii for _ in range(3))
        self._written, self._chain_blocks = 0, 0

    def write(self, tables: Path, scratch: Path, advance: Callable[[int], None]) -> None:
        """Write the buckets, under their name beside file `tables`, and then that file; `advance` counts entries.

        Memory: `piece_bytes`, and that of the parts. The pointers are a mapped file in `scratch`.

        Raises
        ------
        IndexmillError
            As the parts do.
        """
        shape, path = self._shape, scratch / "pointers.npy"
        self._pointers = create_npy(path, np.uint64, (shape.n_radii, shape.n_tables, shape.buckets_per_table))
        with writing_buckets(tables.with_name(names_of(shape).buckets), shape) as file:
            # Three threads: one reads and hashes, one sorts and packs, and this one writes.
            for piece, filled in read_ahead(map(self._filled, read_ahead(self._pieces(advance)))):
                self._seal(piece, filled)
                file.write(filled.blocks)
            file.longest_chain = max(self._longest)
        write_tables(tables, shape, self._pointers)
        del self._pointers
        path.unlink()

    @property
    def chain_blocks(self) -> float:
        """Blocks of the chain that an entry of the first radius lies in, on average."""
        return self._chain_blocks / (self._shape.n_covered * self._shape.n_tables)

    def facts(self) -> dict[str, Any]:
        """Return the facts of the chains for the manifest."""
        return {
            "n_buckets": sum(self._buckets),
            "n_blocks": self._written,
            "buckets": self._buckets,
            "blocks": self._blocks,
            "longest_chain": self._longest,
        }

    def _pieces(self, advance: Callable[[int], None]) -> Iterator[_Piece]:
        """Yield all pieces in the order of the file."""
        for table in range(self._shape.n_tables):
            for radius in range(self._shape.n_radii):
                yield from self._table(table, radius)
                advance(self._shape.n_covered)

    def _table(self, table: int, radius: int) -> Iterator[_Piece]:
        most = sum(part.begin(table, radius) for part in self._parts)
        for first, last in _cuts(np.asarray(most)):
            keys = np.concatenate([part.keys(first, last) for part in self._parts])
            yield _Piece(table, radius, first, last, keys)

    def _filled(self, piece: _Piece) -> tuple[_Piece, Packed]:
        """Return a piece with its entries in blocks."""
        keys = piece.keys
        keys.sort(kind="stable")  # which merges sorted runs
        return piece, packed(keys, piece.last - piece.first, self._shape.block_bytes)

    def _seal(self, piece: _Piece, filled: Packed) -> None:
        """Give the blocks of a piece their pointers and checksums, and the buckets pointers to them."""
        shape, (blocks, lengths, entries) = self._shape, filled
        first_entry = (piece.radius * shape.n_tables + piece.table << shape.hash_bits) + piece.first
        ends = np.cumsum(lengths)
        starts = self._written + ends - lengths
        # pages of the mapped file without a pointer stay as they are, zeros
        occupied = np.flatnonzero(lengths)
        pointers = pointers_to(starts[occupied], lengths[occupied], shape.block_bytes)
        self._pointers[piece.radius, piece.table, piece.first + occupied] = pointers
        owners, numbers = np.repeat(np.arange(len(lengths)), lengths), np.arange(len(blocks))
        following = pointers_to(self._written + numbers + 1, ends[owners] - numbers - 1, shape.block_bytes)
        seal_blocks(blocks, following, (owners + first_entry).astype(np.uint64))
        self._written += len(blocks)
        self._count(piece.radius, lengths, entries)

    def _count(self, radius: int, lengths: NDArray[np.int64], entries: NDArray[np.int64]) -> None:
        self._blocks[radius] += int(lengths.sum())
        self._buckets[radius] += int(np.count_nonzero(lengths))
        self._longest[radius] = max(self._longest[radius], int(lengths.max()))
        if radius == 0:
            self._chain_blocks += int(entries @ lengths)


def _cuts(most: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Cut buckets into ranges of about `PIECE_ENTRIES` entries, at least one bucket each."""
    ends, first = np.cumsum(most), 0
    while first < len(most):
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + PIECE_ENTRIES, side="right"))
        last = min(max(last, first + 1), first + MOST_BUCKETS, len(most))
        yield first, last
        first = last


def entries_bytes(count: int) -> int:
    """Return the memory of so many entries of a piece, and of the blocks that hold them."""
    return _ENTRY_BYTES * count


def piece_bytes(shape: LshShape, longest_entries: int, added: int) -> int:
    """Return the memory of `Chains.write` beside its parts.

    Parameters
    ----------
    shape : LshShape
        Of the result.
    longest_entries : int
        Entries that the longest chains of the files which it is made of have room for, added up.
    added : int
        Vectors that are hashed, which may all fall into one bucket.
    """
    longest = min(longest_entries + added, shape.n_covered)
    return entries_bytes(PIECE_ENTRIES + longest) + _BUCKET_BYTES * shape.buckets_per_table
