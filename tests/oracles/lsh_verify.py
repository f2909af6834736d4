"""Looks through an LSH index: chains, entries, and whether vectors are where their hashes say (docs/formats/lsh.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats import lsh_blocks
from indexmill.formats.errors import FormatError
from indexmill.formats.frame import corrupt
from indexmill.formats.index import verify_index
from indexmill.formats.lsh_index import LshFiles
from indexmill.formats.lsh_shape import OFFSET_BITS, first_offset

#: Bytes of blocks read at a time.
_STEP_BYTES = 4 << 20
#: So near to a border between two cells, two programs may disagree about a vector.
_BORDER = 1e-3
_MASK = np.uint64((1 << OFFSET_BITS) - 1)


def lsh_problems(directory: Path) -> list[str]:
    """What is wrong with an LSH index: what `verify_index` finds, and then what its chains say."""
    problems = verify_index(directory)
    try:
        with LshFiles(directory) as index:
            verify_chains(index)
    except FormatError as error:
        problems.append(str(error))
    return list(dict.fromkeys(problems))


def verify_chains(index: LshFiles) -> None:
    """Check every chain, and every entry against its vector.

    Memory: 8 bytes a bucket, 24 a block, 20 a vector. Time: that of hashing all vectors again.

    Raises
    ------
    CorruptFile
        At the first thing that is wrong.
    """
    owners = _owners(index)
    order = np.argsort(owners, kind="stable")  # the blocks of a table, in file order: chains lead forward
    table_of = owners[order] >> index.shape.hash_bits
    for table in range(index.shape.n_tables):
        found = [
            _Table(index, owners, order, table_of, radius * index.shape.n_tables + table)
            for radius in range(index.shape.n_radii)
        ]
        for first, vectors in index.vectors.blocks():
            cells = index.cells(table, vectors)
            clear = np.abs(cells - np.round(cells)).min(axis=1) > _BORDER
            buckets, fingerprints = index.hashes(table, cells)
            for radius, one in enumerate(found):
                one.check(first, buckets[radius], fingerprints[radius], clear[radius])


class _Table:
    """Bucket and fingerprint of every vector in one table, as the blocks say."""

    def __init__(
        self,
        index: LshFiles,
        owners: NDArray[np.int64],
        order: NDArray[np.int64],
        table_of: NDArray[np.int64],
        table: int,
    ) -> None:
        n = index.shape.n_vectors
        self._index = index
        self._name = f"table {table % index.shape.n_tables} of radius {table // index.shape.n_tables}"
        mine = order[slice(*np.searchsorted(table_of, [table, table + 1]))]
        self.buckets, self.fingerprints = np.zeros(n, np.uint32), np.zeros(n, np.uint32)
        seen, total, before = np.zeros(n, np.bool_), 0, (-1, -1, 0)
        for blocks, numbers in _read(index, mine):
            counts = lsh_blocks.counts_of(blocks)
            entries = lsh_blocks.entries_of(blocks)
            buckets = np.repeat(owners[numbers], counts)
            before = self._check_order(buckets, entries, counts, owners[numbers], before)
            slots, fingerprints = index.buckets.split(entries)
            slots = slots.astype(np.int64)
            seen[slots] = True
            total += len(slots)
            self.buckets[slots] = (buckets & (1 << index.shape.hash_bits) - 1).astype(np.uint32)
            self.fingerprints[slots] = fingerprints.astype(np.uint32)
        if total > n:
            raise corrupt(index.buckets.path, self._name, f"each of {n} slots once", f"{total} entries")
        if not seen.all():
            missing = int(np.flatnonzero(~seen)[0])
            raise corrupt(index.buckets.path, self._name, f"all {n} slots", f"no slot {missing}")

    def _check_order(
        self,
        buckets: NDArray[np.int64],
        entries: NDArray[np.uint64],
        counts: NDArray[np.int64],
        owners: NDArray[np.int64],
        before: tuple[int, int, int],
    ) -> tuple[int, int, int]:
        """Check that entries ascend in a chain and blocks before its last are full; return where the next goes on."""
        last_bucket, last_entry, last_count = before
        same = buckets[1:] == buckets[:-1]
        wrong = bool((same & (entries[1:] <= entries[:-1])).any())
        if buckets[0] == last_bucket:
            wrong |= int(entries[0]) <= last_entry
        if wrong:
            raise corrupt(
                self._index.buckets.path, self._name, "ascending entries in a chain", "entries out of order"
            )
        inner = np.append(last_bucket, owners[:-1]) == owners  # another block of the chain follows
        if (inner & (np.append(last_count, counts[:-1]) != self._index.shape.capacity)).any():
            raise corrupt(
                self._index.buckets.path,
                self._name,
                "full blocks before the last of a chain",
                "one that is not",
            )
        return int(buckets[-1]), int(entries[-1]), int(counts[-1])

    def check(
        self,
        first: int,
        buckets: NDArray[np.uint64],
        fingerprints: NDArray[np.uint64],
        clear: NDArray[np.bool_],
    ) -> None:
        """Compare with the hashes of vectors from `first` on; those count that are `clear` of borders."""
        rows = slice(first, first + len(buckets))
        wrong = clear & ((self.buckets[rows] != buckets) | (self.fingerprints[rows] != fingerprints))
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            got = f"bucket {self.buckets[first + i]}, fingerprint {self.fingerprints[first + i]}"
            expected = f"bucket {buckets[i]}, fingerprint {fingerprints[i]} as its vector hashes"
            raise corrupt(self._index.buckets.path, f"{self._name}: slot {first + i}", expected, got)


def _read(
    index: LshFiles, numbers: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Yield blocks in the order of `numbers`, at most `_STEP_BYTES` that follow each other in the file at a time."""
    step = _STEP_BYTES // index.shape.block_bytes
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    for run in np.split(numbers, cuts):
        for at in range(0, len(run), step):
            some = run[at : at + step]
            yield index.buckets.read(int(some[0]), len(some)), some


def _owners(index: LshFiles) -> NDArray[np.int64]:
    """Return the entry of `pointers` whose chain each block belongs to, having followed all chains."""
    pointers = index.tables.all_pointers()
    buckets = index.buckets
    entries = np.flatnonzero(pointers)
    heads = _block_numbers(index, pointers[entries], lambda i: f"pointer {entries[i]} of tables.imx")
    owners = np.full(buckets.n_blocks, -1, np.int64)
    following = _following(index)
    times = np.bincount(np.concatenate([heads, following[following >= 0]]), minlength=buckets.n_blocks)
    bad = np.flatnonzero(times != 1)
    if len(bad):
        at = int(bad[0])
        raise buckets.corrupt(at, "chains", "one pointer that leads to it", f"{times[at]}")
    level, chains, longest = heads, entries, 0
    while len(level):  # ends: every step leads to a greater block number
        longest += 1
        owners[level] = chains
        after = following[level]
        level, chains = after[after >= 0], chains[after >= 0]
    if longest != buckets.longest_chain:
        raise corrupt(buckets.path, "field 'longest_chain'", longest, buckets.longest_chain)
    return owners


def _following(index: LshFiles) -> NDArray[np.int64]:
    """Return the number of the block that each block leads to, greater than its own, or -1; reads them all."""
    buckets = index.buckets
    following = np.empty(buckets.n_blocks, np.int64)
    step = _STEP_BYTES // index.shape.block_bytes
    for first in range(0, buckets.n_blocks, step):
        blocks = buckets.read(first, min(step, buckets.n_blocks - first))
        pointers = lsh_blocks.next_of(blocks)
        led = np.flatnonzero(pointers)
        numbers = _block_numbers(
            index, pointers[led], lambda i, f=first, m=led: f"{buckets.name(f + m[i])}: next pointer"
        )
        back = np.flatnonzero(numbers <= first + led)
        if len(back):
            at = int(led[back[0]])
            name = buckets.name(int(numbers[back[0]]))
            raise buckets.corrupt(first + at, "next pointer", "a block further on (else a cycle)", name)
        mine = following[first : first + len(blocks)]
        mine[:] = -1
        mine[led] = numbers
    return following


def _block_numbers(index: LshFiles, pointers: NDArray[np.uint64], where: object) -> NDArray[np.int64]:
    """Return the numbers of the blocks that `pointers` lead to; ``where(i)`` says where pointer i stands."""
    offsets, runs = (pointers & _MASK).astype(np.int64), (pointers >> np.uint64(OFFSET_BITS)).astype(np.int64)
    numbers, rest = np.divmod(offsets - first_offset(), index.shape.block_bytes)
    n = index.buckets.n_blocks
    bad = np.flatnonzero((rest != 0) | (numbers < 0) | (numbers >= n) | (runs < 1) | (runs > n - numbers))
    if len(bad):
        i = int(bad[0])
        index.buckets.block_number(int(pointers[i]), where(i))  # type: ignore[operator]
    return numbers
