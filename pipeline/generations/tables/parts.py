"""The entries of new tables, by their origin: the chains of an index, and vectors that are hashed.

A part is asked for one table and radius after the other, in the order of buckets.imx: by table, then by radius.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lsh.hash import PRODUCT_ROWS, TABLES_TOGETHER, hash_rows, project, sort_rows
from indexmill.builders.lsh.rechain import GONE, Widths, keys_of_blocks, keys_of_rows
from indexmill.formats.errors import InputError
from indexmill.formats.lsh.blocks import TAG, counts_of, tags_of
from indexmill.formats.lsh.functions import HashFunctions
from indexmill.formats.lsh.pair import TablePair
from indexmill.formats.lsh.shape import MOST_RUN, OFFSET_BITS, LshShape, first_offset
from indexmill.formats.pagefile.frame import corrupt

#: Vectors projected at a time.
SPAN_ROWS = 8 * PRODUCT_ROWS
#: Bytes of a vector while its hashes of a table are sorted.
SORTED_BYTES = 48
#: Blocks read at a time, in bytes.
_STEP_BYTES = 4 << 20


class Part(Protocol):
    """Entries of new tables from one origin."""

    def begin(self, table: int, radius: int) -> NDArray[np.int64]:
        """Go on to a table; return the entries of each of its buckets at most, int64 (2^u,), in whole blocks.

        So they bound both the entries and the blocks of a range of buckets.
        """

    def keys(self, first: int, last: int) -> NDArray[np.uint64]:
        """Return the keys of buckets `first` to `last`, counted from `first` on; see `builders.lsh.rechain`.

        Asked for ranges that follow each other, from the first bucket of the table to its last one.
        """


class ChainPart:
    """The entries of a pair of files of an index, read front to back.

    Parameters
    ----------
    files : TablePair
    numbers : uint32 array, shape (n,)
        Slot of each vector of the index in the new one, ascending, or `GONE`.
    wanted : Widths
        Of entries of the new index.

    Attributes
    ----------
    chain_blocks : int
        Blocks of the chain that an entry lies in, added up over all entries of the first radius that were read.
    """

    def __init__(self, files: TablePair, numbers: NDArray[np.uint32], wanted: Widths) -> None:
        self._files, self._wanted = files, wanted
        self._numbers = numbers[: files.shape.n_vectors]
        self._stay = int(np.count_nonzero(self._numbers[files.shape.first_slot :] != GONE))
        self.chain_blocks = 0
        self._end = 0  # of the chains read so far

    def begin(self, table: int, radius: int) -> NDArray[np.int64]:
        """See `Part.begin`.

        Raises
        ------
        InputError
            If chains do not lie one after the other, as builds lay them.
        """
        shape = self._files.shape
        self._table, self._radius, pair = table, radius, table * shape.n_radii + radius
        self._found = 0  # entries of vectors that stay
        self._first_entry = radius * shape.n_tables + table << shape.hash_bits
        pointers = self._pointers(pair)
        filled = np.flatnonzero(pointers)
        starts, runs = self._blocks(pointers[filled])
        following = self._head(pair + 1)
        lengths = np.diff(np.append(starts, following))
        expected = np.minimum(lengths, MOST_RUN)
        if not len(starts) or starts[0] != self._end or (lengths < 1).any() or (runs != expected).any():
            raise self._out_of_order()
        self._end = following
        self._lengths = np.zeros(shape.buckets_per_table, np.int64)
        self._lengths[filled] = lengths
        self._starts = int(starts[0]) + np.cumsum(self._lengths) - self._lengths
        return self._lengths * shape.capacity

    def keys(self, first: int, last: int) -> NDArray[np.uint64]:
        """See `Part.keys`.

        Raises
        ------
        CorruptFile
            If a block is damaged, or the table lacks an entry of a vector.
        """
        buckets, shape, lengths = self._files.buckets, self._files.shape, self._lengths[first:last]
        numbers = np.repeat(np.arange(last - first), lengths)
        at, entries = int(self._starts[first]), np.zeros(last - first, np.int64)
        had, found = Widths(shape.id_bits, shape.fingerprint_bits), [np.empty(0, np.uint64)]
        step = _STEP_BYTES // shape.block_bytes
        for begin in range(0, len(numbers), step):
            mine = numbers[begin : begin + step]
            blocks = buckets.read_counted(at + begin, len(mine))
            self._check_tags(blocks, at + begin, mine + (self._first_entry + first))
            try:
                found.append(keys_of_blocks(blocks, mine, had, self._wanted, self._numbers, shape.first_slot))
            except IndexError:
                buckets.check_slots(at + begin, blocks)
                raise
            entries += np.bincount(mine, counts_of(blocks), last - first).astype(np.int64)
        if self._radius == 0:
            self.chain_blocks += int(entries @ lengths)
        keys = np.concatenate(found)
        self._found += len(keys)
        if last == shape.buckets_per_table and self._found != self._stay:
            where = f"entries of table {self._table}, radius {self._radius}"
            raise corrupt(buckets.path, where, f"{self._stay}, one of each vector that stays", self._found)
        return keys

    def _pointers(self, pair: int) -> NDArray[np.uint64]:
        shape = self._files.shape
        table, radius = divmod(pair, shape.n_radii)
        first = radius * shape.n_tables + table << shape.hash_bits
        return self._files.tables.pointers(first, shape.buckets_per_table)

    def _head(self, pair: int) -> int:
        """Return the first block of a table, or the end of all blocks behind the last one."""
        shape = self._files.shape
        if pair == shape.n_tables * shape.n_radii:
            return self._files.buckets.n_blocks
        pointers = self._pointers(pair)
        starts, _ = self._blocks(pointers[pointers != 0][:1])
        if not len(starts):
            raise self._out_of_order()
        return int(starts[0])

    def _blocks(self, pointers: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the block that each pointer leads to, and its run."""
        offsets = (pointers & np.uint64((1 << OFFSET_BITS) - 1)).astype(np.int64) - first_offset()
        blocks, rest = np.divmod(offsets, self._files.shape.block_bytes)
        buckets = self._files.buckets
        bad = np.flatnonzero((rest != 0) | (blocks < 0) | (blocks >= buckets.n_blocks))
        if len(bad):
            buckets.block_number(int(pointers[bad[0]]), f"a pointer of {self._files.tables.path.name}")
        return blocks, (pointers >> np.uint64(OFFSET_BITS)).astype(np.int64)

    def _check_tags(self, blocks: NDArray[np.uint8], first: int, entries: NDArray[np.int64]) -> None:
        stated = np.ascontiguousarray(blocks[:, TAG]).view("<u2").reshape(-1)
        wanted = tags_of(entries.astype(np.uint64))
        bad = np.flatnonzero(stated != wanted)
        if len(bad):
            at = int(bad[0])
            raise self._files.buckets.corrupt(first + at, "tag", int(wanted[at]), int(stated[at]))

    def _out_of_order(self) -> InputError:
        return InputError(
            f"{self._files.tables.path}: table entries from {self._first_entry}: expected chains that lie one after "
            f"the other in {self._files.buckets.path.name}, as builds lay them, got others; build the index again"
        )


class HashedPart:
    """The entries of vectors that are hashed. Memory: `hashed_bytes` a vector, and a span of them projected.

    Parameters
    ----------
    vectors : array, shape (m, dim)
        As they are stored; may be mapped.
    first : int
        Slot of the first one.
    functions : HashFunctions
    shape : LshShape
        Of the new index.
    place_of : callable
        Returns what an error calls a vector, by its number.
    """

    def __init__(
        self,
        vectors: NDArray[Any],
        first: int,
        functions: HashFunctions,
        shape: LshShape,
        place_of: Callable[[int], str],
    ) -> None:
        self._vectors, self._first, self._functions = vectors, first, functions
        self._shape, self._place_of = shape, place_of

    def begin(self, table: int, radius: int) -> NDArray[np.int64]:
        """See `Part.begin`.

        Raises
        ------
        InputError
            If a vector lies too far from zero for the first radius.
        """
        shape = self._shape
        if radius == 0 and table % TABLES_TOGETHER == 0:
            self._hash(table)
        hashes = self._hashes[table % TABLES_TOGETHER, radius]
        sorted_rows = sort_rows(hashes, self._first, shape.hash_bits, shape.fingerprint_bits)
        self._buckets, self._fingerprints, self._slots = sorted_rows
        entries = np.bincount(self._buckets, minlength=shape.buckets_per_table)
        return -(-entries // shape.capacity) * shape.capacity

    def keys(self, first: int, last: int) -> NDArray[np.uint64]:
        """See `Part.keys`."""
        mine = slice(*np.searchsorted(self._buckets, np.array([first, last], np.uint32)))
        columns = (self._buckets[mine], self._fingerprints[mine], self._slots[mine])
        return keys_of_rows(*columns, first, self._shape.id_bits)

    def _hash(self, table: int) -> None:
        """Hash all vectors for up to `TABLES_TOGETHER` tables and all radii."""
        f, n = self._functions, len(self._vectors)
        projections = f.projections[table : table + TABLES_TOGETHER]
        self._hashes = np.empty((len(projections), len(f.radii), n), np.uint32)
        for first in range(0, n, SPAN_ROWS):
            rows = slice(first, min(first + SPAN_ROWS, n))
            projected = project(np.asarray(self._vectors[rows], np.float32), projections)
            for at, products in enumerate(projected):
                for i, radius in enumerate(f.radii):
                    offsets, multipliers = f.offsets[i, table + at], f.multipliers[table + at]
                    try:
                        hashes = hash_rows(products, float(radius), f.width, offsets, multipliers)
                    except OverflowError:
                        raise self._too_far(first + int(np.abs(products).max(axis=0).argmax())) from None
                    self._hashes[at, i, rows] = hashes

    def _too_far(self, vector: int) -> InputError:
        return InputError(
            f"{self._place_of(vector)}: the vector lies too far from zero for hashes of the first radius, "
            f"{self._functions.radii[0]:.6g}; build the index again with these vectors"
        )


def hashed_bytes(shape: LshShape) -> int:
    """Return the bytes that `HashedPart` holds of each vector: hashes of a group of tables, and sorted columns."""
    return group_bytes(shape) + SORTED_BYTES


def group_bytes(shape: LshShape) -> int:
    """Return the bytes of a vector's hashes of a group of tables."""
    return 4 * min(TABLES_TOGETHER, shape.n_tables) * shape.n_radii


def span_bytes(shape: LshShape, n_functions: int, dim: int, n: int) -> int:
    """Return the bytes of a span of `n` vectors while they are projected."""
    together = min(TABLES_TOGETHER, shape.n_tables)
    return min(SPAN_ROWS, n) * (8 * dim + 4 * n_functions * together + 16)
