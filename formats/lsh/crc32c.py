"""CRC32C of many small blocks at once, compiled: a call for each would take longer than its bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel

#: The polynomial of CRC32C, lowest power first.
_POLYNOMIAL = np.uint32(0x82F63B78)


def crc32c_of_rows(blocks: NDArray[np.uint8], first: int) -> NDArray[np.uint32]:
    """Return the CRC32C of each row of `blocks`, uint8 (m, size), from byte `first` on; uint32 (m,)."""
    out = np.empty(len(blocks), "<u4")
    _crc32c(blocks, first, _TABLES, out)
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
