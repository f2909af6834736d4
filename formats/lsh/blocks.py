"""Headers, checksums and entries of bucket blocks, many blocks at a time (docs/formats/lsh.md)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.lsh.shape import ENTRY_BYTES, HEADER_BYTES, block_capacity

#: Places of the fields in a block's header.
CRC, COUNT, TAG, NEXT = slice(0, 4), slice(4, 6), slice(6, 8), slice(8, 16)
#: Distributes the numbers of table entries over the tags of blocks.
_TAG_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def seal_blocks(
    blocks: NDArray[np.uint8], following: NDArray[np.uint64], entries: NDArray[np.uint64]
) -> None:
    """Write pointers, tags and checksums into `blocks`, uint8 (n, block_bytes).

    Parameters
    ----------
    following : uint64 array, shape (n,)
        Pointer from each block to the next block of its chain, or 0.
    entries : uint64 array, shape (n,)
        Number of the table entry of each block's chain.
    """
    blocks[:, TAG] = tags_of(entries).view(np.uint8).reshape(-1, 2)
    blocks[:, NEXT] = following.astype("<u8").view(np.uint8).reshape(-1, 8)
    blocks[:, CRC] = _checksums(blocks).view(np.uint8).reshape(-1, 4)


def tags_of(entries: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """Return the tags of blocks in the chains of these table entries, uint16."""
    return (entries * _TAG_FACTOR >> np.uint64(48)).astype("<u2")


def _checksums(blocks: NDArray[np.uint8]) -> NDArray[np.uint32]:
    from indexmill.formats.lsh.crc32c import crc32c_of_rows  # loads the compiler; a search needs none

    return crc32c_of_rows(blocks, CRC.stop)


def bad_checksums(blocks: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the numbers of `blocks`, uint8 (n, block_bytes), whose checksum differs from the stated one."""
    return np.flatnonzero(_checksums(blocks) != _field(blocks, CRC, "<u4"))


def counts_of(blocks: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the number of entries that each block states."""
    return _field(blocks, COUNT, "<u2").astype(np.int64)


def next_of(blocks: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the pointer of each block to the next, uint64."""
    return _field(blocks, NEXT, "<u8")


def entries_of(blocks: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the entries of all blocks, one after the other; the counts must have been checked."""
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
