"""RaBitQ rows as faiss's IndexIVFRaBitQ has them, behind a rotation (docs/formats/imports.md)."""

from __future__ import annotations

import math
import struct
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.ivf.rabitq import (
    HEAD_BYTES,
    RabitQ,
    error_bounds,
    heads_of,
    levels_of,
    plane_bytes,
)
from indexmill.formats.ivf.rabitq_in_faiss import MORE_BITS, ONE_BIT, code_bytes


def name_of(rabitq: RabitQ) -> bytes:
    """Return the four characters that name the index."""
    return (ONE_BIT if rabitq.bits == 1 else MORE_BITS).encode()


def codes_of(rows: NDArray[np.uint8], rabitq: RabitQ) -> NDArray[np.uint8]:
    """Return rows, uint8 (m, row_bytes), as faiss has them: uint8 (m, code_bytes).

    With more than one bit faiss first estimates by the signs alone. The factor for these follows from the levels, whose
    sum of magnitudes stands for that of the residual. faiss leaves the bound of its error between a row and the worst
    result.
    """
    bits, dim = rabitq.bits, rabitq.dim
    lengths, factors = heads_of(rows).astype(np.float64).T
    signs = rows[:, HEAD_BYTES : HEAD_BYTES + plane_bytes(dim)]
    if bits == 1:
        return np.hstack([signs, _floats(lengths, factors * math.sqrt(dim))])
    levels = levels_of(rows, dim, bits)
    values = np.abs(2 * levels.astype(np.int32) + (1 - (1 << bits)))
    of_signs = factors * math.sqrt(dim) * (values * values).sum(axis=1) / values.sum(axis=1)
    lower = (levels[:, :, None] >> np.arange(bits - 1, dtype=np.uint8)) & np.uint8(1)
    packed = np.packbits(lower.reshape(len(rows), -1), axis=1, bitorder="little")
    before = _floats(lengths, of_signs, 2 * error_bounds(lengths, of_signs, 1.0, dim))
    return np.hstack([signs, before, packed, _floats(lengths, -4 * factors)])


def _floats(*columns: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.column_stack(columns).astype("<f4").view(np.uint8)


def write_quantizer(rabitq: RabitQ, metric: int, file: BinaryIO) -> None:
    """Write the encoding of rows; queries are not rounded (0 bits)."""
    size = code_bytes(rabitq)
    file.write(struct.pack("<QQi", rabitq.dim, size, metric))
    if rabitq.bits > 1:
        file.write(struct.pack("<Q", rabitq.bits))
    file.write(struct.pack("<QBB", size, 1, 0))
