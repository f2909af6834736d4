"""Verification of an LSH index: chains, entries, and the place of each vector by its hashes (docs/formats/lsh.md)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.oracles.files.verify import verify_index

from indexmill.formats.errors import FormatError
from indexmill.formats.lsh.blocks import counts_of, entries_of
from indexmill.formats.lsh.chains import chain_owners, read_blocks
from indexmill.formats.lsh.index import LshFiles
from indexmill.formats.lsh.pair import TablePair
from indexmill.formats.pagefile.frame import corrupt

#: So near to a border between two cells, two programs may disagree about a vector.
_BORDER = 1e-3


def lsh_problems(directory: Path) -> list[str]:
    """Problems of an LSH index: those that `verify_index` finds, and then those of its chains."""
    problems = verify_index(directory)
    try:
        with LshFiles(directory) as index:
            verify_chains(index)
    except FormatError as error:
        problems.append(str(error))
    return list(dict.fromkeys(problems))


def verify_chains(index: LshFiles) -> None:
    """Check every chain of every pair of files, and every entry against its vector.

    Memory: 8 bytes a bucket, 24 a block, 20 a vector. Time: that of hashing all vectors again.

    Raises
    ------
    CorruptFile
        At the first thing that is wrong.
    """
    for pair in index.pairs:
        _verify_pair(index, pair)


def _verify_pair(index: LshFiles, pair: TablePair) -> None:
    owners = chain_owners(pair)
    order = np.argsort(owners, kind="stable")  # the blocks of a table, in file order: chains lead forward
    table_of = owners[order] >> index.shape.hash_bits
    for table in range(index.shape.n_tables):
        found = [
            _Table(pair, owners, order, table_of, radius * index.shape.n_tables + table)
            for radius in range(index.shape.n_radii)
        ]
        for first, vectors in index.vectors.blocks():
            cells = index.cells(table, vectors)
            clear = np.abs(cells - np.round(cells)).min(axis=1) > _BORDER
            buckets, rests = index.hashes(table, cells)
            for radius, one in enumerate(found):
                one.check(first, buckets[radius], rests[radius], clear[radius])


class _Table:
    """Bucket and fingerprint of every vector of a pair of files in one table, as the blocks say."""

    def __init__(
        self,
        pair: TablePair,
        owners: NDArray[np.int64],
        order: NDArray[np.int64],
        table_of: NDArray[np.int64],
        table: int,
    ) -> None:
        n, first = pair.shape.n_covered, pair.shape.first_slot
        self._pair = pair
        self._name = f"table {table % pair.shape.n_tables} of radius {table // pair.shape.n_tables}"
        mine = order[slice(*np.searchsorted(table_of, [table, table + 1]))]
        self.buckets, self.fingerprints = np.zeros(n, np.uint32), np.zeros(n, np.uint32)
        seen, total, before = np.zeros(n, np.bool_), 0, (-1, -1, 0)
        for blocks, numbers in read_blocks(pair, mine):
            counts = counts_of(blocks)
            entries = entries_of(blocks)
            buckets = np.repeat(owners[numbers], counts)
            before = self._check_order(buckets, entries, counts, owners[numbers], before)
            slots, fingerprints = pair.buckets.split(entries)
            slots = slots.astype(np.int64) - first
            seen[slots] = True
            total += len(slots)
            self.buckets[slots] = (buckets & (1 << pair.shape.hash_bits) - 1).astype(np.uint32)
            self.fingerprints[slots] = fingerprints.astype(np.uint32)
        if total > n:
            raise corrupt(pair.buckets.path, self._name, f"each of {n} slots once", f"{total} entries")
        if not seen.all():
            missing = first + int(np.flatnonzero(~seen)[0])
            raise corrupt(pair.buckets.path, self._name, f"all {n} slots", f"no slot {missing}")

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
                self._pair.buckets.path, self._name, "ascending entries in a chain", "entries out of order"
            )
        inner = np.append(last_bucket, owners[:-1]) == owners  # another block of the chain follows
        if (inner & (np.append(last_count, counts[:-1]) != self._pair.shape.capacity)).any():
            raise corrupt(
                self._pair.buckets.path,
                self._name,
                "full blocks before the last of a chain",
                "one that is not",
            )
        return int(buckets[-1]), int(entries[-1]), int(counts[-1])

    def check(
        self,
        first: int,
        buckets: NDArray[np.uint64],
        rests: NDArray[np.uint64],
        clear: NDArray[np.bool_],
    ) -> None:
        """Compare with the hashes of vectors from `first` on, of those of the pair that are `clear` of borders."""
        shape = self._pair.shape
        held = slice(
            max(first, shape.first_slot),
            max(first, shape.first_slot, min(first + len(buckets), shape.n_vectors)),
        )
        mine, rows = (slice(held.start - at, held.stop - at) for at in (shape.first_slot, first))
        buckets, clear = buckets[rows], clear[rows]
        fingerprints = rests[rows] & np.uint64((1 << shape.fingerprint_bits) - 1)
        wrong = clear & ((self.buckets[mine] != buckets) | (self.fingerprints[mine] != fingerprints))
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            got = f"bucket {self.buckets[mine][i]}, fingerprint {self.fingerprints[mine][i]}"
            expected = f"bucket {buckets[i]}, fingerprint {fingerprints[i]} as its vector hashes"
            raise corrupt(self._pair.buckets.path, f"{self._name}: slot {held.start + i}", expected, got)
