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
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.graph.nodes import NodeFormat
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.generations.opened import OpenedIndex

#: Vectors encoded at a time.
_BLOCK = 65536
#: Bytes of nodes read or assembled at a time.
_NODE_BYTES = 4 << 20


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
        Those of its last full build or layout; 0 where all get other slots. The others, old and new, are the *tail*,
        which is laid out anew.
    tail_vectors : array, shape (n - built, dim)
        As stored on a page.
    tail_codes : uint8 array, shape (n - built, M)
    codes : uint8 array, shape (n, M), or None
        Of all vertices, where nodes hold those of their neighbours; `tail_codes` is then the end of it.
    """

    vectors: NDArray[Any]
    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]
    present: int
    built: int
    tail_vectors: NDArray[Any]
    tail_codes: NDArray[np.uint8]
    codes: NDArray[np.uint8] | None


def new_graph(directory: Path, index: OpenedIndex, added: int, laid_out_anew: bool = False) -> GrowingGraph:
    """Make the arrays in `directory`, their room on disk taken before anything is written.

    Parameters
    ----------
    laid_out_anew : bool
        Whether all vertices are the tail.

    Raises
    ------
    BudgetError
        If the disk has no room.
    """
    space, n = index.space, index.n + added
    built = 0 if laid_out_anew else index.laid_out
    tail, chunks = n - built, len(index.codes.codebook.offsets) - 1
    codes = create_npy(
        directory / "codes.npy", np.dtype(np.uint8), (n if space.node.code_bytes else tail, chunks)
    )
    return GrowingGraph(
        create_npy(directory / "vectors.npy", space.dtype, (n, space.node.dim)),
        create_npy(
            directory / "neighbours.npy", np.dtype(np.uint32), (n, list_capacity(space.node.max_degree))
        ),
        create_npy(directory / "degrees.npy", np.dtype(np.int32), (n,)),
        index.n,
        built,
        create_npy(directory / "tail-vectors.npy", space.node.element_dtype, (tail, space.node.dim)),
        codes[len(codes) - tail :],
        codes if space.node.code_bytes else None,
    )


def grown_bytes(index: OpenedIndex, n: int, tail: int) -> int:
    """Return the room of the files of `new_graph` for `n` vertices, of which `tail` are laid out anew."""
    node, chunks = index.space.node, len(index.codes.codebook.offsets) - 1
    vectors = n * (index.space.dtype.itemsize * node.dim + 4 * list_capacity(node.max_degree) + 4)
    stored = tail * node.element_dtype.itemsize * node.dim
    return vectors + stored + chunks * (n if node.code_bytes else tail)


def rows_at_once(node: NodeFormat) -> int:
    """Return how many nodes are read or assembled at a time: as many as 4 MiB hold, at least one."""
    return max(1, _NODE_BYTES // node.node_bytes)


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


def fill_tail(index: OpenedIndex, graph: GrowingGraph, codebook: Codebook, threads: int) -> None:
    """Gather what the tail is written from: old vectors and codes as they are, new ones rounded and encoded.

    With another `codebook` than that of `index`, old vectors are encoded, too; all vertices are the tail then.
    """
    built, present, n = graph.built, graph.present, len(graph.vectors)
    held, begin = (graph.tail_codes, built) if graph.codes is None else (graph.codes, 0)
    is_kept, first = codebook is index.codes.codebook, 0
    for codes in index.codes.blocks() if is_kept else ():
        skip = min(max(begin - first, 0), len(codes))
        at = max(first - begin, 0)
        held[at : at + len(codes) - skip] = codes[skip:]
        first += len(codes)
    step = rows_at_once(index.space.node)
    for first in range(built, present, step):
        block = index.graph.read_nodes(first, min(step, present - first))
        graph.tail_vectors[first - built : first - built + len(block)] = block.vectors
    for first in range(present, n, step):
        rows = graph.vectors[first : first + step]
        graph.tail_vectors[first - built : first - built + len(rows)] = index.space.stored(rows)
    for first in range(present if is_kept else 0, n, _BLOCK):
        rows = graph.vectors[first : first + _BLOCK]
        codes = encode_pq(index.space.as_given(rows), codebook, threads)
        graph.tail_codes[first - built : first - built + len(rows)] = codes
