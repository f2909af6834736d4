"""Bucket blocks: entries of chains to blocks and back, many at a time (docs/formats/lsh.md)."""

from __future__ import annotations

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from indexmill.formats.lsh_shape import ENTRY_BYTES, HEADER_BYTES, block_capacity

_CRC, _COUNT, _TAG, _NEXT = slice(0, 4), slice(4, 6), slice(6, 8), slice(8, 16)
#: Spreads the numbers of entries over the tags of their blocks.
_TAG_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class BlockPacker:
    """Turns entries that come in the order of their buckets into blocks, whose headers lack pointer, tag and checksum.

    A bucket may come in many pieces: what does not fill a block waits for the next one. Memory: three times the
    entries of a piece.

    Parameters
    ----------
    block_bytes : int
    """

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._capacity = block_capacity(block_bytes)
        self._buckets = np.empty(0, np.int64)
        self._entries = np.empty(0, np.uint64)

    def add(self, buckets: NDArray[np.int64], entries: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Take `entries` of ascending `buckets`; return the blocks that are finished, uint8 (n_blocks, block_bytes)."""
        buckets = np.concatenate([self._buckets, buckets])
        entries = np.concatenate([self._entries, entries])
        if not len(entries):
            return np.empty((0, self._block_bytes), np.uint8)
        last = int(np.searchsorted(buckets, buckets[-1]))
        last += (len(entries) - last - 1) // self._capacity * self._capacity
        self._buckets, self._entries = buckets[last:].copy(), entries[last:].copy()
        return _packed(buckets[:last], entries[:last], self._block_bytes)

    def finish(self) -> NDArray[np.uint8]:
        """Return the last block, if there is one."""
        buckets, entries = self._buckets, self._entries
        self._buckets, self._entries = buckets[:0], entries[:0]
        return _packed(buckets, entries, self._block_bytes)


def _packed(buckets: NDArray[np.int64], entries: NDArray[np.uint64], block_bytes: int) -> NDArray[np.uint8]:
    capacity = block_capacity(block_bytes)
    starts = np.flatnonzero(np.diff(buckets, prepend=-1))
    sizes = np.diff(np.append(starts, len(buckets)))
    lengths = -(-sizes // capacity)
    ends = np.cumsum(lengths)
    n_blocks = int(ends[-1]) if len(ends) else 0
    places = np.arange(len(entries)) + np.repeat((ends - lengths) * capacity - starts, sizes)
    laid = np.zeros(n_blocks * capacity, f"V{ENTRY_BYTES}")
    raw = np.ascontiguousarray(entries, "<u8").view(np.uint8).reshape(-1, 8)[:, :ENTRY_BYTES]
    laid[places] = np.ascontiguousarray(raw).view(laid.dtype).reshape(-1)
    blocks = np.zeros((n_blocks, block_bytes), np.uint8)
    blocks[:, HEADER_BYTES : HEADER_BYTES + ENTRY_BYTES * capacity] = laid.view(np.uint8).reshape(
        n_blocks, ENTRY_BYTES * capacity
    )
    counts = np.full(n_blocks, capacity, "<u2")
    counts[ends - 1] = sizes - (lengths - 1) * capacity
    blocks[:, _COUNT] = counts.view(np.uint8).reshape(-1, 2)
    return blocks


def seal_blocks(
    blocks: NDArray[np.uint8], following: NDArray[np.uint64], entries: NDArray[np.uint64]
) -> None:
    """Write into `blocks`, uint8 (n, block_bytes), the pointers `following` to the next ones, tags and checksums.

    `entries`, uint64 (n,), are the numbers of the table entries to whose chains they belong.
    """
    blocks[:, _TAG] = tags_of(entries).view(np.uint8).reshape(-1, 2)
    blocks[:, _NEXT] = following.astype("<u8").view(np.uint8).reshape(-1, 8)
    blocks[:, _CRC] = _checksums(blocks).view(np.uint8).reshape(-1, 4)


def tags_of(entries: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """Return the tags of the blocks of these entries."""
    return (entries * _TAG_FACTOR >> np.uint64(48)).astype("<u2")


def _checksums(blocks: NDArray[np.uint8]) -> NDArray[np.uint32]:
    data, size = blocks.tobytes(), blocks.shape[1]
    value = google_crc32c.value
    parts = (value(data[at + 4 : at + size]) for at in range(0, len(data), size))
    return np.fromiter(parts, dtype="<u4", count=len(blocks))


def bad_checksums(blocks: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return which of `blocks`, uint8 (n, block_bytes), have another checksum than they state."""
    return np.flatnonzero(_checksums(blocks) != _field(blocks, _CRC, "<u4"))


def counts_of(blocks: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the number of entries that each block states."""
    return _field(blocks, _COUNT, "<u2").astype(np.int64)


def next_of(blocks: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the pointer of each block."""
    return _field(blocks, _NEXT, "<u8")


def entries_of(blocks: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the entries of all blocks, one after the other; their counts were checked."""
    capacity = block_capacity(blocks.shape[1])
    laid = np.ascontiguousarray(blocks[:, HEADER_BYTES : HEADER_BYTES + ENTRY_BYTES * capacity])
    counts = counts_of(blocks)
    ends = np.cumsum(counts)
    places = np.arange(ends[-1]) + np.repeat(np.arange(len(blocks)) * capacity - (ends - counts), counts)
    wide = np.zeros((len(places), 8), np.uint8)
    wide[:, :ENTRY_BYTES] = (
        laid.view(f"V{ENTRY_BYTES}").reshape(-1)[places].view(np.uint8).reshape(-1, ENTRY_BYTES)
    )
    return wide.view("<u8").reshape(-1)


def _field(blocks: NDArray[np.uint8], place: slice, dtype: str) -> np.ndarray:
    return np.ascontiguousarray(blocks[:, place]).view(dtype).reshape(-1)
