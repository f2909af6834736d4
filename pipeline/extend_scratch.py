"""The larger index unpacked into arrays that its graph can grow in, memory-mapped: page cache, not memory.

Rows are in slot order, so that unpacking reads and writes from front to back; new vertices follow.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.vamana import list_capacity
from indexmill.pipeline.extend_index import OpenedIndex
from indexmill.pipeline.extend_space import NodeSpace


@dataclass(frozen=True)
class GrowingGraph:
    """Vectors and neighbour lists of all vertices, old slots first.

    Attributes
    ----------
    vectors : uint8 or float32 array, shape (n, dim)
        As compared, see `NodeSpace`.
    neighbours : uint32 array, shape (n, `list_capacity`)
    degrees : int32 array, shape (n,)
    present : int
        Vertices of the larger index.
    """

    vectors: NDArray[Any]
    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]
    present: int


def new_graph(directory: Path, space: NodeSpace, present: int, added: int) -> GrowingGraph:
    """Make the arrays in `directory`, their room on disk taken before anything is written.

    Raises
    ------
    OSError
        If the disk has no room.
    """
    n = present + added
    return GrowingGraph(
        _mapped(directory / "vectors.npy", space.dtype, (n, space.node.dim)),
        _mapped(directory / "neighbours.npy", np.dtype(np.uint32), (n, list_capacity(space.node.max_degree))),
        _mapped(directory / "degrees.npy", np.dtype(np.int32), (n,)),
        present,
    )


def unpack(
    index: OpenedIndex,
    graph: GrowingGraph,
    first: int,
    convert: Callable[[NDArray[Any]], NDArray[Any]],
    advance: Callable[[int], None],
) -> None:
    """Copy the nodes of `index`, in slot order, to the rows from `first` on.

    A list that is longer than R of `graph` keeps its nearest neighbours.

    Parameters
    ----------
    convert : callable
        Turns compared vectors of `index` into those of `graph`.
    """
    most = graph.neighbours.shape[1] - 1  # at least R
    at = first
    for block in index.graph.blocks():
        rows = slice(at, at + len(block))
        width = min(most, block.neighbours.shape[1])
        graph.vectors[rows] = convert(index.space.compared(block.vectors))
        graph.neighbours[rows, :width] = block.neighbours[:, :width] + np.uint32(first)
        graph.degrees[rows] = np.minimum(block.degrees, width)
        at += len(block)
        advance(len(block))


def _mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Create a .npy file of zeros and map it; writing to a map of a full disk would end the process instead."""
    mapped = np.lib.format.open_memmap(path, "w+", dtype, shape)
    with open(path, "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    return np.asarray(mapped)
