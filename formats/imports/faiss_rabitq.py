"""Import of faiss's IndexIVFRaBitQ: its codec and its rows (docs/formats/imports.md)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.imports.faiss_file import FaissFile
from indexmill.formats.imports.mapped import damaged, not_such_a_file
from indexmill.formats.ivf.rabitq import MAX_BITS, RabitQ, pack_rows, plane_bytes
from indexmill.formats.ivf.rabitq_in_faiss import BEFORE_BYTES, BEHIND_BYTES, MORE_BITS, code_bytes

_ACTION = "build an index from the vectors"


def read_quantizer(file: FaissFile, kind: str, dim: int, rotation: NDArray[np.float32] | None) -> RabitQ:
    """Read the encoding of rows behind a rotation, if there is one.

    Raises
    ------
    CorruptFile
        If its numbers are inconsistent.
    ForeignFile
        If a code has more bits than ours, or is not that of a residual.
    """
    begin = file.at
    found_dim, size = file.number("<u8", "dimension"), file.number("<u8", "bytes of a row")
    file.number("<i4", "metric")
    bits = file.number("<u8", "bits of a component") if kind == MORE_BITS else 1
    again = file.number("<u8", "bytes of a row")
    by_residual = file.number("u1", "flag by_residual")
    file.number("u1", "bits of a query")
    if by_residual != 1 or not 1 <= bits <= MAX_BITS:
        expected = f"codes of residuals, 1 to {MAX_BITS} bits a component"
        raise not_such_a_file(
            file.path, f"byte {begin}", expected, f"by_residual {by_residual}, {bits} bits", _ACTION
        )
    rabitq = RabitQ(bits, np.eye(dim, dtype=np.float32) if rotation is None else rotation)
    wanted = code_bytes(rabitq)
    for what, needed, got in (
        ("components of the rotation", dim, rabitq.dim),
        ("components of a row", dim, found_dim),
        ("bytes of a row", wanted, size),
        ("bytes of a row, again", wanted, again),
    ):
        if got != needed:
            raise damaged(file.path, f"byte {begin}: RaBitQ: {what}", needed, got)
    return rabitq


def rows_of(
    codes: NDArray[np.uint8], rabitq: RabitQ, path: Path, number: int, chosen: NDArray[Any]
) -> NDArray[np.uint8]:
    """Return rows of a list as ours, uint8 (m, row_bytes).

    Parameters
    ----------
    codes : uint8 array, shape (m, code_bytes)
        The rows as faiss has them.
    path : Path
        The file.
    number : int
        The list.
    chosen : int array, shape (m,)
        Place of each row in the list.

    Raises
    ------
    CorruptFile
        If a length or a factor is negative or not finite.
    """
    dim, bits, width = rabitq.dim, rabitq.bits, plane_bytes(rabitq.dim)
    levels = np.unpackbits(codes[:, :width], axis=1, count=dim, bitorder="little")
    if bits == 1:
        lengths, factors = _floats(codes[:, width:]).T
        factors = factors / math.sqrt(dim)
    else:
        lengths, factors = _floats(codes[:, -BEHIND_BYTES:]).T
        factors = factors / -4
        packed = np.unpackbits(
            codes[:, width + BEFORE_BYTES : -BEHIND_BYTES], axis=1, count=dim * (bits - 1), bitorder="little"
        ).reshape(len(codes), dim, bits - 1)
        levels <<= np.uint8(bits - 1)
        for bit in range(bits - 1):
            levels |= packed[:, :, bit] << np.uint8(bit)
    heads = np.column_stack([lengths, factors]).astype(np.float32)
    wrong = np.flatnonzero(~(np.isfinite(heads) & (heads >= 0)).all(axis=1))
    if len(wrong):
        length, factor = heads[wrong[0]].tolist()
        expected = "a length and a factor that are finite and not negative"
        raise damaged(path, f"list {number}, row {chosen[wrong[0]]}", expected, f"{length} and {factor}")
    return pack_rows(heads, levels, bits)


def _floats(raw: NDArray[np.uint8]) -> NDArray[np.float64]:
    return np.ascontiguousarray(raw).view("<f4").astype(np.float64)
