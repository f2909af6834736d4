"""PostgreSQL's binary COPY format, one field at a time."""

from __future__ import annotations

import struct


def read_copy(data: bytes) -> list[list[bytes]]:
    """Return the fields of every tuple."""
    assert data[:11] == b"PGCOPY\n\xff\r\n\0"
    flags, extension = struct.unpack_from(">ii", data, 11)
    assert (flags, extension) == (0, 0)
    at, rows = 19, []
    while True:
        (count,) = struct.unpack_from(">h", data, at)
        at += 2
        if count == -1:
            assert at == len(data)
            return rows
        fields = []
        for _ in range(count):
            (size,) = struct.unpack_from(">i", data, at)
            fields.append(data[at + 4 : at + 4 + size])
            assert len(fields[-1]) == size
            at += 4 + size
        rows.append(fields)


def read_vector(field: bytes, element: str) -> list[float]:
    """Return the components of a value of pgvector: ``f`` for vector, ``e`` for halfvec."""
    dim, unused = struct.unpack_from(">hh", field)
    assert unused == 0
    return list(struct.unpack_from(f">{dim}{element}", field, 4))
