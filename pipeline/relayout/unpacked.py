"""The graph of an index by vector id, in memory-mapped files, which orders are fitted to.

Vector ids are the numbers that vertices had in the build, so an order comes out the same whatever layout the index
has now, and the same as a build of that order would have given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.pagefile.mapped import create_npy
from indexmill.layout.order import Adjacency
from indexmill.pipeline.generations.opened import OpenedIndex


@dataclass(frozen=True)
class UnpackedIndex:
    """Graph, and vectors if they are wanted, of an index; a vertex is a vector id, or has another number of its own.

    Attributes
    ----------
    vector_ids : uint32 array, shape (n,)
        Vertex in each slot of the index.
    graph : Adjacency
    points : uint8 or float32 array, shape (n, dim), or None
        As the kernels compare them (`pipeline.generations.node_space.NodeSpace`); of numbered vertices those that
        remain, (m, dim).
    """

    vector_ids: NDArray[np.uint32]
    graph: Adjacency
    points: NDArray[Any] | None


#: Files of the graph and of the vectors.
_GRAPH_FILES = ("neighbours.npy", "degrees.npy", "points.npy")


@dataclass(frozen=True)
class Numbering:
    """Numbers of the vertices of an index, some of which are deleted.

    Attributes
    ----------
    vertices : uint32 array, shape (n,)
        Vertex in each slot. Those that remain come first, in the order of their vector ids.
    living : int
        How many remain.
    """

    vertices: NDArray[np.uint32]
    living: int


def unpacked_bytes(index: OpenedIndex, with_points: bool) -> int:
    """Return the size of the files that `unpack` writes."""
    node = index.graph.node_format
    return index.n * (8 + 4 * node.max_degree + with_points * node.dim * index.space.dtype.itemsize)


def unpack(
    index: OpenedIndex,
    directory: Path,
    with_points: bool,
    advance: Callable[[int], None],
    numbering: Numbering | None = None,
) -> UnpackedIndex:
    """Copy the nodes of `index` into mapped files of `directory`, and let go of the ids it holds.

    Memory: about 16 MiB. Reads from front to back, writes at random, into the page cache.

    Parameters
    ----------
    numbering : Numbering, optional
        By default a vertex is a vector id, and all remain.

    Raises
    ------
    BudgetError
        If the disk has no room.
    CorruptFile
        If a page is damaged.
    """
    node, n = index.graph.node_format, index.n
    if numbering is None:
        numbering = Numbering(map_array(directory / "vector-ids.npy", index.vector_ids), n)
    vector_ids, living = numbering.vertices, numbering.living
    index.release_ids()
    names = (directory / name for name in _GRAPH_FILES)
    neighbours = create_npy(next(names), np.uint32, (n, node.max_degree))
    degrees = create_npy(next(names), np.int32, (n,))
    points = create_npy(next(names), index.space.dtype, (living, node.dim)) if with_points else None
    first = 0
    for block in index.graph.blocks():
        vertices = vector_ids[first : first + len(block)]
        neighbours[vertices] = vector_ids[block.neighbours]
        degrees[vertices] = block.degrees
        if points is not None:
            remain = vertices < living
            points[vertices[remain]] = index.compared(first, block)[remain]
        first += len(block)
        advance(len(block))
    return UnpackedIndex(vector_ids, Adjacency(neighbours, degrees), points)


def drop_graph(directory: Path) -> None:
    """Delete the files of the graph, which saves the system from writing them back."""
    for name in _GRAPH_FILES:
        (directory / name).unlink(missing_ok=True)


def map_array(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    """Write `array` to a .npy file and return it mapped, so that it is page cache and no longer memory."""
    mapped = create_npy(path, array.dtype, array.shape)
    mapped[:] = array
    return mapped
