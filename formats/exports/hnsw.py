"""The graph section of faiss's HNSW files, of one level or of several (docs/formats/imports.md).

The places of a vertex lie together: those of level 0, then those of each upper level that it is on. A free place holds
-1, behind the neighbours.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports.rows import Advance

#: Numbers written at a time.
_STEP = 1 << 18
_FREE = np.uint32(0xFFFFFFFF)
#: Share of the vertices below which faiss makes no level.
_LEAST_SHARE = 1e-9


@dataclass(frozen=True)
class Level:
    """An upper level of a graph.

    Attributes
    ----------
    vertices : uint32 array, shape (m,)
        Ascending; a subset of those of the level below.
    neighbours : uint32 array, shape (m, up to the places of the level)
        Vertices of this level; row i holds ``degrees[i]`` neighbours of ``vertices[i]``, then anything.
    degrees : int array, shape (m,)
    """

    vertices: NDArray[np.uint32]
    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]


@dataclass(frozen=True)
class HnswShape:
    """What the section says besides neighbours.

    Attributes
    ----------
    n : int
        Vertices.
    places : int
        Most neighbours on level 0.
    upper_places : int
        Most neighbours on an upper level; 0 for a graph of one level.
    entry : int
        Vertex where searches start, on the highest level.
    add_list : int
        efConstruction, of insertions by faiss.
    search_list : int
        efSearch.
    """

    n: int
    places: int
    upper_places: int
    entry: int
    add_list: int
    search_list: int

    @property
    def shares(self) -> list[float]:
        """Share of the vertices whose highest level is 0, 1 and so on, by which faiss draws those that it adds."""
        if self.upper_places == 0:
            return [1.0]
        scale = 1 / math.log(self.upper_places)
        shares: list[float] = []
        while (share := math.exp(-len(shares) / scale) * -math.expm1(-1 / scale)) >= _LEAST_SHARE:
            shares.append(share)
        return shares


def write_hnsw(
    shape: HnswShape,
    blocks: Iterable[tuple[NDArray[np.uint32], NDArray[np.int32]]],
    levels: Sequence[Level],
    file: BinaryIO,
    advance: Advance,
) -> None:
    """Write the section. Memory: a byte a vertex, the levels, and blocks.

    Parameters
    ----------
    blocks : iterable of (neighbours, degrees)
        Level 0, consecutive vertices: uint32 (m, up to `shape.places`) and int (m,), as of `Level`.
    levels : sequence of Level
        Upper levels from the lowest; those of a graph of one level are empty.
    """
    tops = np.zeros(shape.n, np.uint8)
    for level in levels:
        tops[level.vertices] += 1
    shares = shape.shares
    shares += [0.0] * (1 + len(levels) - len(shares))
    ends = [0, *(shape.places + level * shape.upper_places for level in range(len(shares)))]
    file.write(struct.pack(f"<Q{len(shares)}d", len(shares), *shares))
    file.write(struct.pack(f"<Q{len(ends)}i", len(ends), *ends))
    file.write(struct.pack("<Q", shape.n))
    for first in range(0, shape.n, _STEP):
        file.write((tops[first : first + _STEP].astype("<i4") + 1).data)
    file.write(struct.pack("<QQ", shape.n + 1, 0))
    end = 0
    for first in range(0, shape.n, _STEP):
        ends_of = np.cumsum(_places(shape, tops[first : first + _STEP])) + end
        file.write(ends_of.astype("<u8").data)
        end = int(ends_of[-1])
    file.write(struct.pack("<Q", end))
    first = 0
    for neighbours, degrees in blocks:
        file.write(_block(shape, neighbours, degrees, tops[first : first + len(degrees)], first, levels).data)
        first += len(degrees)
        advance(len(degrees))
    # the last number is one that faiss no longer uses
    file.write(struct.pack("<5i", shape.entry, len(levels), shape.add_list, shape.search_list, 1))


def _places(shape: HnswShape, tops: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the places of each vertex by its highest level."""
    return shape.places + tops.astype(np.int64) * shape.upper_places


def _block(
    shape: HnswShape, neighbours: NDArray[np.uint32], degrees: NDArray[np.int32], tops: NDArray[np.uint8],
    first: int, levels: Sequence[Level],
) -> NDArray[np.uint32]:  # fmt: skip
    """Return the places of consecutive vertices, the first of which is `first`, on all levels."""
    lowest = _filled(neighbours, degrees, shape.places)
    if not tops.any():
        return lowest
    ends = np.cumsum(_places(shape, tops))
    places = np.full(ends[-1], _FREE, "<u4")
    starts = ends - _places(shape, tops)
    places[starts[:, None] + np.arange(shape.places)] = lowest
    for number, level in enumerate(levels):
        begin, end = np.searchsorted(level.vertices, [first, first + len(degrees)])
        rows = level.vertices[begin:end].astype(np.int64) - first
        at = starts[rows] + shape.places + number * shape.upper_places
        upper = _filled(level.neighbours[begin:end], level.degrees[begin:end], shape.upper_places)
        places[at[:, None] + np.arange(upper.shape[1])] = upper
    return places


def _filled(neighbours: NDArray[np.uint32], degrees: NDArray[np.int32], places: int) -> NDArray[np.uint32]:
    """Return lists of so many places, which `_FREE` fills up."""
    width = neighbours.shape[1]
    lists = np.full((len(neighbours), places), _FREE, "<u4")
    lists[:, :width] = np.where(np.arange(width) < degrees[:, None], neighbours, _FREE)
    return lists
