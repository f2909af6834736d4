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
    """Check every chain, and every entry against its vector.

    Memory: 8 bytes a bucket, 24 a block, 20 a vector. Time: that of hashing all vectors again.

    Raises
    ------
    CorruptFile
        At the first thing that is wrong.
    """
    owners = chain_owners(index)
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
        for blocks, numbers in read_blocks(index, mine):
            counts = counts_of(blocks)
            entries = entries_of(blocks)
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
