"""Rows of RaBitQ codes: a code of 1 to 8 bits for each component of a rotated residual (docs/formats/ivf.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.codes import read_rotation
from indexmill.formats.pagefile.reader import PageFile

#: Most bits a component.
MAX_BITS = 8
#: Deviations of estimates within which a search keeps a row, as in the paper of RaBitQ.
DEVIATIONS = 1.9
#: Bytes of the two floats at the start of a row.
HEAD_BYTES = 8


@dataclass(frozen=True, eq=False)
class RabitQ:
    """What all RaBitQ rows of an index share.

    Attributes
    ----------
    bits : int
        Bits a component, 1 to `MAX_BITS`.
    rotation : float32 array, shape (dim, dim)
        An orthogonal matrix R: centroids and rows are those of ``x @ R`` of vectors x.
    """

    bits: int
    rotation: NDArray[np.float32]

    @property
    def dim(self) -> int:
        """Components of a vector."""
        return len(self.rotation)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return row_bytes_of(self.dim, self.bits)


def plane_bytes(dim: int) -> int:
    """Return the bytes of one bit of every component."""
    return -(-dim // 8)


def row_bytes_of(dim: int, bits: int) -> int:
    """Return the bytes of a row."""
    return HEAD_BYTES + bits * plane_bytes(dim)


def pack_rows(heads: NDArray[np.float32], levels: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Return rows, uint8 (m, row_bytes).

    Parameters
    ----------
    heads : float32 array, shape (m, 2)
        Squared length of each residual, and its factor.
    levels : uint8 array, shape (m, dim)
        Code of each component, below 2^bits.
    """
    width = plane_bytes(levels.shape[1])
    rows = np.empty((len(levels), HEAD_BYTES + bits * width), np.uint8)
    rows[:, :HEAD_BYTES] = np.ascontiguousarray(heads, "<f4").view(np.uint8)
    for plane in range(bits):
        at = HEAD_BYTES + plane * width
        chosen = (levels >> np.uint8(bits - 1 - plane)) & np.uint8(1)
        rows[:, at : at + width] = np.packbits(chosen, axis=1, bitorder="little")
    return rows


def heads_of(rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the squared length of the residual and the factor of each row, float32 (m, 2)."""
    return np.ascontiguousarray(rows[:, :HEAD_BYTES]).view("<f4")


def levels_of(rows: NDArray[np.uint8], dim: int, bits: int) -> NDArray[np.uint8]:
    """Return the code of each component of rows, uint8 (m, dim)."""
    planes = rows[:, HEAD_BYTES:].reshape(len(rows), bits, plane_bytes(dim))
    levels = np.zeros((len(rows), dim), np.uint8)
    for plane in range(bits):
        levels += levels + np.unpackbits(planes[:, plane], axis=1, count=dim, bitorder="little")
    return levels


def error_bounds(
    lengths: NDArray[Any], factors: NDArray[Any], squares: NDArray[Any] | float, dim: int
) -> Any:
    """Return `DEVIATIONS` of the estimates of products with a unit vector, of the type and shape of the lengths.

    Parameters
    ----------
    lengths, factors : float array
        Squared lengths of residuals, and their factors.
    squares : float array or float
        Squared lengths of the vectors that levels stand for.
    """
    # the squared length of the residual, times the squared tangent of its angle to the code
    spread = np.maximum(factors**2 * squares - lengths, 0)
    return DEVIATIONS * np.sqrt(spread / max(dim - 1, 1))


def read_rabitq(file: PageFile, dim: int) -> RabitQ:
    """Read the rotation and the bits of a code from centroids.imx.

    Raises
    ------
    CorruptFile
        If they are missing or invalid.
    """
    return RabitQ(file.field("bits", 1, MAX_BITS), read_rotation(file, dim))
