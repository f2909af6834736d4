"""hnswlib's index file, written and read field by field in plain Python."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_HEADER = struct.Struct("<6QiI3QdQ")
#: Stands behind the end of a list.
_REST = 0xFFFFFFF0


@dataclass(frozen=True)
class Vertex:
    """A vertex: its lists from the lowest level up, by number, and whether it is marked as deleted."""

    label: int
    vector: bytes
    lists: list[list[int]]
    deleted: bool = False


class ByLabel(NamedTuple):
    """An index that owes nothing to the numbers of its vertices."""

    top: int
    entry: int
    vertices: dict[int, tuple[bytes, list[list[int]], bool]]


def random_vertices(n: int, dim: int, m: int, seed: int) -> list[Vertex]:
    """Return a graph of some levels with random lists; labels are not numbers of vertices."""
    rng = np.random.default_rng(seed)
    levels = np.minimum(rng.geometric(0.7, n) - 1, 3)
    vertices = []
    for v in range(n):
        lists = []
        for level in range(int(levels[v]) + 1):
            others = np.flatnonzero((levels >= level) & (np.arange(n) != v))
            size = min(len(others), int(rng.integers(0, (1 if level else 2) * m + 1)))
            lists.append(rng.choice(others, size, replace=False).tolist())
        vector = rng.normal(size=dim).astype("<f4").tobytes()
        vertices.append(Vertex(10**12 + 7 * v, vector, lists, bool(rng.integers(0, 9) == 0)))
    return vertices


def to_bytes(vertices: list[Vertex], m: int) -> bytes:
    """Return the file; searches enter at the first vertex of the top level."""
    heights = [len(vertex.lists) - 1 for vertex in vertices]
    top = max(heights)
    vector_at = 4 + 4 * 2 * m
    label_at = vector_at + len(vertices[0].vector)
    n = len(vertices)
    entry = heights.index(top)
    out = [
        _HEADER.pack(
            0, n + 5, n, label_at + 8, label_at, vector_at, top, entry, m, 2 * m, m, 1 / math.log(m), 100
        )
    ]
    for vertex in vertices:
        out += [_list(vertex.lists[0], 2 * m, vertex.deleted), vertex.vector, struct.pack("<Q", vertex.label)]
    for vertex in vertices:
        higher = b"".join(_list(one, m, False) for one in vertex.lists[1:])
        out.append(struct.pack("<I", len(higher)) + higher)
    return b"".join(out)


def _list(numbers: list[int], width: int, marked: bool) -> bytes:
    padded = numbers + [_REST] * (width - len(numbers))
    return struct.pack(f"<HBB{width}I", len(numbers), marked, 0, *padded)


def from_bytes(data: bytes) -> ByLabel:
    """Read a file as `to_bytes` writes it."""
    fields = _HEADER.unpack_from(data)
    n, vertex_bytes, label_at, vector_at, top, entry, m = (fields[i] for i in (2, 3, 4, 5, 6, 7, 8))
    at = _HEADER.size
    labels = [struct.unpack_from("<Q", data, at + v * vertex_bytes + label_at)[0] for v in range(n)]
    lists, vectors, deleted = [], [], []
    for v in range(n):
        begin = at + v * vertex_bytes
        lists.append([_named(data, begin, labels)])
        vectors.append(data[begin + vector_at : begin + label_at])
        deleted.append(bool(data[begin + 2]))
    at += n * vertex_bytes
    for v in range(n):
        size = struct.unpack_from("<I", data, at)[0]
        lists[v] += [_named(data, at + 4 + begin, labels) for begin in range(0, size, 4 * (m + 1))]
        at += 4 + size
    assert at == len(data)
    return ByLabel(top, labels[entry], {labels[v]: (vectors[v], lists[v], deleted[v]) for v in range(n)})


def _named(data: bytes, at: int, labels: list[int]) -> list[int]:
    size = struct.unpack_from("<H", data, at)[0]
    return [labels[u] for u in struct.unpack_from(f"<{size}I", data, at + 4)]
