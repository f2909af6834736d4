"""Packing of sorted hashes into bucket blocks: the entries of a bucket in order, each bucket from a new block on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.formats.lsh.blocks import COUNT
from indexmill.formats.lsh.shape import ENTRY_BYTES, HEADER_BYTES, block_capacity

_ENTRY_BYTES, _HEADER_BYTES, _COUNT = ENTRY_BYTES, HEADER_BYTES, COUNT.start


class BlockPacker:
    """Packer of entries, sorted by bucket, into blocks whose headers lack the pointer and the checksum.

    A bucket may arrive in several pieces: the last block waits for more entries. Memory: the blocks of a piece.

    Parameters
    ----------
    block_bytes : int
    id_bits : int
        Lowest bits of an entry, which hold the slot; the other bits hold the fingerprint.
    first, last : int
        Buckets are ``first <= bucket < last``.

    Attributes
    ----------
    counts : uint32 array, shape (last - first,)
        Entries of each bucket so far.
    """

    def __init__(self, block_bytes: int, id_bits: int, first: int, last: int) -> None:
        self.counts = np.zeros(last - first, "<u4")
        self._first = first
        self._id_bits = id_bits
        self._capacity = block_capacity(block_bytes)
        self._open = np.empty((0, block_bytes), np.uint8)  # the unfinished block, if there is one
        self._bucket, self._size = -1, 0  # its bucket, and its number of entries

    def add(
        self, buckets: NDArray[np.uint32], fingerprints: NDArray[np.uint32], slots: NDArray[np.uint32]
    ) -> NDArray[np.uint8]:
        """Add entries of ascending `buckets`; return the finished blocks, uint8 (n_blocks, block_bytes)."""
        begun = _count_begun(buckets, self._bucket, self._size, self._capacity)
        held = len(self._open)
        blocks = np.zeros((held + begun, self._open.shape[1]), np.uint8)
        blocks[:held] = self._open
        self._bucket, self._size = _fill(
            buckets,
            fingerprints,
            slots,
            self._id_bits,
            self._bucket,
            self._size,
            self._capacity,
            held - 1,
            blocks,
        )
        _count(buckets, self._first, self.counts)
        self._open = blocks[-1:].copy()
        return blocks[:-1]

    def finish(self) -> NDArray[np.uint8]:
        """Return the last block, if there is one."""
        last, self._open = self._open, self._open[:0]
        return last


@kernel
def _count_begun(buckets: Any, bucket: Any, size: int, capacity: int) -> int:  # pragma: no cover - compiled
    begun = 0
    for i in range(buckets.size):
        if buckets[i] != bucket or size == capacity:
            begun += 1
            bucket, size = np.int64(buckets[i]), 0
        size += 1
    return begun


@kernel
def _fill(
    buckets: Any, fingerprints: Any, slots: Any, id_bits: int, bucket: Any, size: int, capacity: int, at: int,
    blocks: Any,
) -> tuple[int, int]:  # fmt: skip  # pragma: no cover - compiled
    for i in range(buckets.size):
        if buckets[i] != bucket or size == capacity:
            at += 1
            bucket, size = np.int64(buckets[i]), 0
        entry = np.uint64(fingerprints[i]) << np.uint64(id_bits) | np.uint64(slots[i])
        block = blocks[at]
        place = _HEADER_BYTES + _ENTRY_BYTES * size
        for byte in range(_ENTRY_BYTES):
            block[place + byte] = np.uint8(entry >> np.uint64(8 * byte))
        size += 1
        block[_COUNT] = np.uint8(size)
        block[_COUNT + 1] = np.uint8(size >> 8)
    return bucket, size


@kernel
def _count(buckets: Any, first: int, counts: Any) -> None:  # pragma: no cover - compiled
    for i in range(buckets.size):
        counts[np.int64(buckets[i]) - first] += np.uint32(1)
