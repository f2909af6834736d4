"""Names and sizes of RaBitQ rows in a file of faiss (docs/formats/imports.md)."""

from __future__ import annotations

from indexmill.formats.ivf.rabitq import RabitQ, plane_bytes

#: Names of the index, with one bit a component and with more.
ONE_BIT, MORE_BITS = "Iwrq", "Iwrr"
KINDS = (ONE_BIT, MORE_BITS)
#: Bytes of the floats behind the signs: of one bit, and of more bits before and behind the lower bits.
ONE_BIT_BYTES, BEFORE_BYTES, BEHIND_BYTES = 8, 12, 8


def code_bytes(rabitq: RabitQ) -> int:
    """Return the bytes of a row; one of one bit a component has no second part."""
    signs, lower = plane_bytes(rabitq.dim), -(-rabitq.dim * (rabitq.bits - 1) // 8)
    return signs + (ONE_BIT_BYTES if rabitq.bits == 1 else BEFORE_BYTES + lower + BEHIND_BYTES)
