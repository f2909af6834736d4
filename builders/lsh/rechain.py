"""Bucket blocks taken apart into keys, which sort as entries do, and packed again from keys of several origins.

A *key* is ``bucket << 40 | fingerprint << id_bits | slot``, with buckets counted from the first one of a piece: keys in
ascending order are the entries of a piece in the order of the file (docs/formats/lsh.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.formats.lsh.blocks import COUNT
from indexmill.formats.lsh.shape import ENTRY_BITS, ENTRY_BYTES, HEADER_BYTES, block_capacity

#: Most buckets of a piece.
MOST_BUCKETS = 1 << 64 - ENTRY_BITS
#: Number of a slot whose entries are left out.
GONE = np.uint32(2**32 - 1)
_ENTRY_BYTES, _HEADER_BYTES, _COUNT, _ENTRY_BITS = ENTRY_BYTES, HEADER_BYTES, COUNT.start, ENTRY_BITS


class Widths(NamedTuple):
    """Bits of the slot and of the fingerprint in an entry."""

    id_bits: int
    fingerprint_bits: int


class Packed(NamedTuple):
    """Blocks of a piece whose headers lack the pointer, the tag and the checksum.

    Attributes
    ----------
    blocks : uint8 array, shape (n_blocks, block_bytes)
    lengths, entries : int64 array, shape (n_buckets,)
        Blocks and entries of each bucket.
    """

    blocks: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    entries: NDArray[np.int64]


def keys_of_blocks(
    blocks: NDArray[np.uint8], buckets: NDArray[np.int64], had: Widths, wanted: Widths,
    numbers: NDArray[np.uint32], first_slot: int = 0,
) -> NDArray[np.uint64]:  # fmt: skip
    """Return the keys of the entries of blocks, in their order, without those of slots that are `GONE`.

    They ascend, as the entries do, if fingerprints keep their bits and numbers ascend.

    Parameters
    ----------
    blocks : uint8 array, shape (n_blocks, block_bytes)
        With counts that were checked.
    buckets : int64 array, shape (n_blocks,)
        Bucket of each block, from the first one of the piece on.
    had, wanted : Widths
        In the blocks, and in the keys: not more bits of a fingerprint.
    numbers : uint32 array, shape (n_slots,)
        New slot of each slot, or `GONE`.
    first_slot : int
        First slot that the blocks may hold.

    Raises
    ------
    IndexError
        If a block holds a slot at or above ``n_slots``, or below `first_slot`.
    """
    counts = np.ascontiguousarray(blocks[:, COUNT]).view("<u2").reshape(-1)
    out = np.empty(int(counts.sum(dtype=np.int64)), np.uint64)
    found = _unpack(blocks, buckets, counts, had.id_bits, *wanted, numbers, first_slot, out)
    if found < 0:
        raise IndexError(f"slot: {first_slot}..{len(numbers) - 1}")
    return out[:found]


def keys_of_rows(
    buckets: NDArray[np.uint32], fingerprints: NDArray[np.uint32], slots: NDArray[np.uint32], first: int,
    id_bits: int,
) -> NDArray[np.uint64]:  # fmt: skip
    """Return the keys of rows that `builders.lsh.hash.sort_rows` sorted, in a piece from bucket `first` on."""
    keys: NDArray[np.uint64] = (buckets - np.uint32(first)).astype(np.uint64) << np.uint64(ENTRY_BITS)
    keys |= fingerprints.astype(np.uint64) << np.uint64(id_bits)
    keys |= slots
    return keys


def packed(keys: NDArray[np.uint64], n_buckets: int, block_bytes: int) -> Packed:
    """Fill blocks with the entries of ascending `keys`, each bucket from a new block on."""
    capacity = block_capacity(block_bytes)
    entries = np.zeros(n_buckets, np.int64)
    _count(keys, entries)
    lengths = -(-entries // capacity)
    blocks = np.zeros((int(lengths.sum()), block_bytes), np.uint8)
    _pack(keys, capacity, blocks)
    return Packed(blocks, lengths, entries)


@kernel
def _unpack(
    blocks: Any, buckets: Any, counts: Any, had: int, id_bits: int, fingerprint_bits: int, numbers: Any,
    first_slot: int, out: Any,
) -> int:  # fmt: skip  # pragma: no cover - compiled
    low, high = np.uint64((1 << had) - 1), np.uint64((1 << fingerprint_bits) - 1)
    gone, at = np.uint32(0xFFFFFFFF), 0
    for b in range(len(blocks)):
        block, bucket = blocks[b], np.uint64(buckets[b]) << np.uint64(_ENTRY_BITS)
        for i in range(counts[b]):
            place, entry = _HEADER_BYTES + _ENTRY_BYTES * i, np.uint64(0)
            for byte in range(_ENTRY_BYTES):
                entry |= np.uint64(block[place + byte]) << np.uint64(8 * byte)
            slot = np.int64(entry & low)
            if slot >= len(numbers) or slot < first_slot:
                return -1
            number = numbers[slot]
            if number != gone:
                fingerprint = (entry >> np.uint64(had)) & high
                out[at] = bucket | fingerprint << np.uint64(id_bits) | np.uint64(number)
                at += 1
    return at


@kernel
def _count(keys: Any, entries: Any) -> None:  # pragma: no cover - compiled
    for i in range(keys.size):
        entries[np.int64(keys[i] >> np.uint64(_ENTRY_BITS))] += 1


@kernel
def _pack(keys: Any, capacity: int, blocks: Any) -> None:  # pragma: no cover - compiled
    bucket, size, at = np.int64(-1), 0, -1
    for i in range(keys.size):
        mine = np.int64(keys[i] >> np.uint64(_ENTRY_BITS))
        if mine != bucket or size == capacity:
            at, bucket, size = at + 1, mine, 0
        place = _HEADER_BYTES + _ENTRY_BYTES * size
        for byte in range(_ENTRY_BYTES):
            blocks[at, place + byte] = np.uint8(keys[i] >> np.uint64(8 * byte))
        size += 1
        blocks[at, _COUNT] = np.uint8(size)
        blocks[at, _COUNT + 1] = np.uint8(size >> 8)
