"""A sample of an index on which orders are tried: the vertices around one vertex, and their induced graph.

A sample drawn at random has no edges left; neighbours of a vertex lie around it, so a ball keeps most of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.layout.order import Adjacency

#: Vertices looked at at a time.
_BLOCK = 16_384


@dataclass(frozen=True)
class Region:
    """Vertices of a sample, numbered anew in ascending order.

    Attributes
    ----------
    vertices : uint32 array, shape (s,), ascending
    centre : float32 array, shape (stored dim,)
    radius : float
        Squared distance from `centre` within which they lie.
    """

    vertices: NDArray[np.uint32]
    centre: NDArray[np.float32]
    radius: float

    def __len__(self) -> int:
        return len(self.vertices)


def ball(points: NDArray[Any], centre: int, size: int) -> Region:
    """Return the `size` vertices nearest to vertex `centre`, ties by the lower; memory 8 bytes a vertex.

    Parameters
    ----------
    points : uint8 or float32 array, shape (n, stored dim)
    """
    n = len(points)
    middle = points[centre].astype(np.float32)
    distances = np.empty(n, np.float32)
    for first in range(0, n, _BLOCK):
        rows = points[first : first + _BLOCK].astype(np.float32) - middle
        distances[first : first + len(rows)] = np.einsum("ij,ij->i", rows, rows)
    if size >= n:
        return Region(np.arange(n, dtype=np.uint32), middle, float(distances.max()))
    radius = np.partition(distances, size - 1)[size - 1]
    inside = np.flatnonzero(distances < radius)
    border = np.flatnonzero(distances == radius)[: size - len(inside)]
    return Region(np.sort(np.concatenate([inside, border])).astype(np.uint32), middle, float(radius))


def induced(graph: Adjacency, vertices: NDArray[np.uint32]) -> Adjacency:
    """Return the graph that `vertices`, ascending, induce, as `among` does."""
    return among(graph.neighbours, graph.degrees, vertices, vertices)


def among(
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.integer[Any]],
    rows: NDArray[np.integer[Any]],
    vertices: NDArray[np.uint32],
) -> Adjacency:
    """Return the lists in `rows` of `neighbours` without what is not one of `vertices`; they keep their order.

    Returns
    -------
    Adjacency
        Of the same width as `neighbours`, numbered by position in `vertices`, ascending.
    """
    width = neighbours.shape[1]
    lists, counts = np.zeros((len(rows), width), np.uint32), np.zeros(len(rows), np.int32)
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK]
        places = places_of(neighbours[block], vertices)
        kept = (places >= 0) & (np.arange(width) < degrees[block, None])
        n = kept.sum(axis=1)
        lists[first : first + len(block)][np.arange(width) < n[:, None]] = places[kept]
        counts[first : first + len(block)] = n
    return Adjacency(lists, counts)


def places_of(wanted: NDArray[np.uint32], vertices: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the place of each of `wanted` in `vertices`, ascending; -1 where it is not there."""
    places = np.minimum(np.searchsorted(vertices, wanted), len(vertices) - 1)
    return np.where(vertices[places] == wanted, places, -1)
