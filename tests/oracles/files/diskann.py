"""DiskANN's files read and written one field at a time."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

SECTOR = 4096


def read_disk_index(path: Path, dtype: str) -> tuple[np.ndarray, list[list[int]], int]:
    """Return vectors, neighbour lists and medoid of a disk index."""
    data = path.read_bytes()
    n, dim, medoid, node_bytes, per_sector = struct.unpack_from("<5Q", data, 8)
    kind = np.dtype(dtype)
    vectors, lists = np.zeros((n, dim), kind), []
    for v in range(n):
        if per_sector:
            at = SECTOR * (1 + v // per_sector) + v % per_sector * node_bytes
        else:
            at = SECTOR * (1 + v * -(-node_bytes // SECTOR))
        vectors[v] = np.frombuffer(data, kind, dim, at)
        at += dim * kind.itemsize
        (degree,) = struct.unpack_from("<I", data, at)
        lists.append(list(struct.unpack_from(f"<{degree}I", data, at + 4)))
    return vectors, lists, medoid


def read_memory_index(path: Path) -> tuple[list[list[int]], int]:
    """Return neighbour lists and entry vertex of an in-memory index."""
    data = path.read_bytes()
    (entry,) = struct.unpack_from("<I", data, 12)
    lists, at = [], 24
    while at < len(data):
        (degree,) = struct.unpack_from("<I", data, at)
        lists.append(list(struct.unpack_from(f"<{degree}I", data, at + 4)))
        at += 4 + 4 * degree
    return lists, entry


def write_disk_index(
    path: Path, vectors: np.ndarray, lists: list[list[int]], medoid: int, width: int
) -> None:
    """Write a disk index as DiskANN's C++ writer does."""
    n, dim = vectors.shape
    node_bytes = dim * vectors.itemsize + 4 + 4 * width
    per_sector = SECTOR // node_bytes
    nodes = [
        vectors[v].tobytes() + struct.pack("<I", len(list_)) + struct.pack(f"<{len(list_)}I", *list_)
        for v, list_ in enumerate(lists)
    ]
    nodes = [node.ljust(node_bytes, b"\0") for node in nodes]
    group = max(per_sector, 1)
    sectors = [b"".join(nodes[first : first + group]) for first in range(0, n, group)]
    size = -(-node_bytes // SECTOR) * SECTOR
    body = b"".join(sector.ljust(size, b"\0") for sector in sectors)
    header = struct.pack("<II9Q", 9, 1, n, dim, medoid, node_bytes, per_sector, 0, 0, 0, SECTOR + len(body))
    path.write_bytes(header.ljust(SECTOR, b"\0") + body)


def bin_bytes(array: np.ndarray) -> bytes:
    """One of DiskANN's blocks: rows, columns, payload."""
    return struct.pack("<ii", *array.shape) + array.tobytes()
