"""Ground-truth files of the big-ann benchmarks: the true nearest neighbours of each query.

Layout (little-endian): u32 n_queries, u32 k, u32 ids [n_queries, k], f32 distances [n_queries, k].
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.formats.sources.filesystem import locate, reading

_HEADER_BYTES = 8


@dataclass(frozen=True)
class Truth:
    """The k nearest vectors to each query.

    Attributes
    ----------
    ids : uint32 array, shape (n_queries, k)
        Vector ids, nearest first.
    distances : float32 array, shape (n_queries, k)
        As the program that wrote the file defines them; squared Euclidean distances in our files.

    Raises
    ------
    ValueError
        If shapes or types differ from these ones.
    """

    ids: NDArray[np.uint32]
    distances: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.ids.ndim != 2 or self.ids.shape != self.distances.shape or not self.ids.size:
            raise ValueError(
                f"ids of shape {self.ids.shape}, distances of shape {self.distances.shape}; "
                "expected both (n_queries, k), at least (1, 1)"
            )
        if self.ids.dtype != np.uint32 or self.distances.dtype != np.float32:
            raise ValueError(f"types {self.ids.dtype}, {self.distances.dtype}; expected uint32, float32")


def read_truth(path: str | Path) -> Truth:
    """Read a ground-truth file, local or by URL.

    Raises
    ------
    InputError
        If it is missing, or its size disagrees with its header; the message shows the arithmetic.
    """
    file = locate(os.path.expanduser(str(path)))
    with reading(file.name, "a ground-truth file"), file.open() as handle:
        size = handle.size()
        header = handle.read_at(_HEADER_BYTES, 0)
        n_queries, k = _check_header(file.name, header, size)
        data = handle.read_at(size - _HEADER_BYTES, _HEADER_BYTES)
    if len(data) != size - _HEADER_BYTES:
        raise InputError(f"{file.name}: got {len(data):,} of {size - _HEADER_BYTES:,} bytes; read it again")
    ids, distances = np.frombuffer(data, "<u4").reshape(2, n_queries, k)
    return Truth(ids.astype(np.uint32), distances.view("<f4").astype(np.float32))


def write_truth(path: str | Path, truth: Truth) -> None:
    """Write a local ground-truth file atomically.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    with atomic_write(path) as file:
        file.write(np.array(truth.ids.shape, "<u4").tobytes())
        file.write(truth.ids.astype("<u4").tobytes())
        file.write(truth.distances.astype("<f4").tobytes())


def _check_header(name: str, header: bytes, size: int) -> tuple[int, int]:
    if len(header) < _HEADER_BYTES:
        raise InputError(f"{name}: {size} bytes; expected at least 8 for a header of u32 n_queries, u32 k")
    n_queries, k = (int(value) for value in np.frombuffer(header, "<u4"))
    expected = _HEADER_BYTES + n_queries * k * 8
    if size != expected:
        without = (
            "; it seems to hold ids without distances" if size == _HEADER_BYTES + n_queries * k * 4 else ""
        )
        raise InputError(
            f"{name}: header says {n_queries:,} queries x {k:,} neighbours, so expected 8 + {n_queries} x {k} x (4 + "
            f"4) = {expected:,} bytes; got {size:,}{without}; is this a ground-truth file?"
        )
    if not n_queries or not k:
        raise InputError(
            f"{name}: {n_queries} queries x {k} neighbours; expected at least 1 x 1; make the truth again"
        )
    return n_queries, k
