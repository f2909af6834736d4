"""The larger index unpacked into arrays that its graph can grow in, memory-mapped: page cache, not memory.

Rows are in slot order, so that unpacking reads and writes from front to back; new vertices follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.quantize.pq import encode_pq
from indexmill.builders.vamana.build import list_capacity
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.generations.opened import OpenedIndex

#: Vectors converted at a time.
_BLOCK = 65536


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
    built : int
        Those of its last full build or layout. The others, old and new, are the *tail*, which is laid out anew.
    tail_vectors : array, shape (n - built, dim)
        As stored on a page.
    tail_codes : uint8 array, shape (n - built, M)
    codes : uint8 array, shape (n, M), or None
        Of all vertices, where nodes hold those of their neighbours.
    """

    vectors: NDArray[Any]
    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]
    present: int
    built: int
    tail_vectors: NDArray[Any]
    tail_codes: NDArray[np.uint8]
    codes: NDArray[np.uint8] | None


def new_graph(directory: Path, index: OpenedIndex, added: int) -> GrowingGraph:
    """Make the arrays in `directory`, their room on disk taken before anything is written.

    Raises
    ------
    BudgetError
        If the disk has no room.
    """
    space, n = index.space, index.n + added
    tail, chunks = n - index.laid_out, len(index.codes.codebook.offsets) - 1
    return GrowingGraph(
        create_npy(directory / "vectors.npy", space.dtype, (n, space.node.dim)),
        create_npy(
            directory / "neighbours.npy", np.dtype(np.uint32), (n, list_capacity(space.node.max_degree))
        ),
        create_npy(directory / "degrees.npy", np.dtype(np.int32), (n,)),
        index.n,
        index.laid_out,
        create_npy(directory / "tail-vectors.npy", space.node.element_dtype, (tail, space.node.dim)),
        create_npy(directory / "tail-codes.npy", np.dtype(np.uint8), (tail, chunks)),
        create_npy(directory / "codes.npy", np.dtype(np.uint8), (n, chunks))
        if space.node.code_bytes
        else None,
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
        graph.vectors[rows] = convert(index.compared(at - first, block))
        graph.neighbours[rows, :width] = block.neighbours[:, :width] + np.uint32(first)
        graph.degrees[rows] = np.minimum(block.degrees, width)
        at += len(block)
        advance(len(block))


def fill_tail(index: OpenedIndex, graph: GrowingGraph, threads: int) -> None:
    """Gather what the tail is written from: old vectors and codes as they are, new ones rounded and encoded."""
    old = graph.present - graph.built
    first = 0
    for codes in index.codes.blocks():
        if graph.codes is not None:
            graph.codes[first : first + len(codes)] = codes
        skip = min(max(graph.built - first, 0), len(codes))
        at = first + skip - graph.built
        graph.tail_codes[max(at, 0) : max(at, 0) + len(codes) - skip] = codes[skip:]
        first += len(codes)
    for first in range(0, old, _BLOCK):
        block = index.graph.read_nodes(graph.built + first, min(_BLOCK, old - first))
        graph.tail_vectors[first : first + len(block)] = block.vectors
    for first in range(graph.present, len(graph.vectors), _BLOCK):
        rows = graph.vectors[first : first + _BLOCK]
        places = slice(first - graph.built, first - graph.built + len(rows))
        graph.tail_vectors[places] = index.space.stored(rows)
        graph.tail_codes[places] = encode_pq(index.space.as_given(rows), index.codes.codebook, threads)
        if graph.codes is not None:
            graph.codes[first : first + len(rows)] = graph.tail_codes[places]
