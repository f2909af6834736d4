"""Common parts of faiss files: headers, flat vectors, ids (docs/formats/imports.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports.rows import Advance, ExportedIndex

FILE_NAME = "index.faiss"
#: faiss's numbers of the metrics; cosine is the inner product of unit vectors.
METRICS = {"l2": 1, "ip": 0, "cosine": 0}
_STORAGE = {"l2": b"IxF2", "ip": b"IxFI", "cosine": b"IxFI"}
#: Value of two header fields that faiss never reads.
_UNUSED = 1 << 20
#: Bits of an id, which is i64.
ID_BITS = 63


def header(index: ExportedIndex) -> bytes:
    """Return the header of a faiss index, which follows the name of its kind."""
    return header_of(index.dim, index.n, METRICS[index.metric])


def header_of(dim: int, n: int, metric: int) -> bytes:
    """Return the header of an index of `n` vectors; `metric` is faiss's number."""
    return struct.pack("<iqqqBi", dim, n, _UNUSED, _UNUSED, 1, metric)


def begin_ids(index: ExportedIndex, file: BinaryIO) -> None:
    """Begin an IndexIDMap around the following index, if the engine is to return user ids."""
    if index.ids == "user":
        file.write(b"IxMp" + header(index))


def end_ids(target: str, index: ExportedIndex, file: BinaryIO) -> None:
    """Write the ids of the IndexIDMap after its index."""
    if index.ids == "user":
        file.write(struct.pack("<Q", index.n))
        file.write(index.whole_ids(target, ID_BITS).astype("<i8").data)


def write_flat(
    index: ExportedIndex, vectors: Iterable[NDArray[Any]], file: BinaryIO, advance: Advance
) -> None:
    """Write a flat index with `vectors`, in slot order, as float32."""
    file.write(_STORAGE[index.metric] + header(index) + struct.pack("<Q", index.n * index.dim))
    for rows in vectors:
        file.write(np.ascontiguousarray(rows, "<f4").data)
        advance(len(rows))
