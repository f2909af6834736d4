"""Headers, checksums and entries of bucket blocks, many blocks at a time (docs/formats/lsh.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.formats.lsh.shape import ENTRY_BYTES, HEADER_BYTES, block_capacity

#: Places of the fields in a block's header.
CRC, COUNT, TAG, NEXT = slice(0, 4), slice(4, 6), slice(6, 8), slice(8, 16)
#: The polynomial of CRC32C, lowest power first.
_POLYNOMIAL = np.uint32(0x82F63B78)
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
    """Return the CRC32C of each block behind its own checksum; compiled, since blocks are small and many."""
    out = np.empty(len(blocks), "<u4")
    _crc32c(blocks, CRC.stop, _TABLES, out)
    return out


def _crc32c_tables() -> NDArray[np.uint32]:
    """Return what each value of a byte adds to a CRC32C, uint32 (8, 256), by how many bytes follow it in a step."""
    tables = np.zeros((8, 256), np.uint32)
    tables[0] = np.arange(256)
    for _ in range(8):
        odd = (tables[0] & 1).astype(bool)
        tables[0] = np.where(odd, tables[0] >> 1 ^ _POLYNOMIAL, tables[0] >> 1)
    for i in range(1, 8):
        tables[i] = tables[i - 1] >> 8 ^ tables[0][tables[i - 1] & 0xFF]
    return tables


@kernel
def _crc32c(blocks: Any, first: int, tables: Any, out: Any) -> None:  # pragma: no cover - compiled
    n, size = blocks.shape
    whole = first + (size - first) // 8 * 8
    for b in range(n):
        crc = np.uint32(0xFFFFFFFF)
        for at in range(first, whole, 8):
            crc = (
                tables[7, blocks[b, at] ^ (crc & np.uint32(0xFF))]
                ^ tables[6, blocks[b, at + 1] ^ (crc >> np.uint32(8) & np.uint32(0xFF))]
                ^ tables[5, blocks[b, at + 2] ^ (crc >> np.uint32(16) & np.uint32(0xFF))]
                ^ tables[4, blocks[b, at + 3] ^ (crc >> np.uint32(24))]
                ^ tables[3, blocks[b, at + 4]]
                ^ tables[2, blocks[b, at + 5]]
                ^ tables[1, blocks[b, at + 6]]
                ^ tables[0, blocks[b, at + 7]]
            )
        for at in range(whole, size):
            crc = crc >> np.uint32(8) ^ tables[0, blocks[b, at] ^ (crc & np.uint32(0xFF))]
        out[b] = ~crc


_TABLES = _crc32c_tables()


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
