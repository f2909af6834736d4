"""What every index of another program is to us: vectors, neighbour lists, and what else could be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.graph.nodes import MAX_DEGREE
from indexmill.formats.imports.mapped import damaged
from indexmill.formats.sources.file import RowBlock, Vectors, take_by_runs
from indexmill.formats.sources.joined import MAX_DIM

#: Vertices whose lists are read at a time, at most.
BLOCK_VERTICES = 8192
#: Slots are u32 inside one graph.
MAX_VERTICES = 2**32 - 2


class ListBlock(NamedTuple):
    """Neighbour lists of consecutive vertices.

    Attributes
    ----------
    first : int
        Vertex of row 0.
    neighbours : uint32 array, shape (m, width)
        What stands beyond a vertex's degree means nothing.
    degrees : int32 array, shape (m,)
    """

    first: int
    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]


class NeighbourLists(Protocol):
    """The graph of an index, read from front to back.

    Attributes
    ----------
    width : int
        Neighbours a list can hold, 1 to 512.
    """

    width: int

    def blocks(self) -> Iterator[ListBlock]:
        """Yield all lists, every neighbour found to be a vertex.

        Raises
        ------
        CorruptFile
            Naming file, vertex and offset.
        """
        ...


@dataclass
class ImportedVectors:
    """The vectors of an index, as a `VectorFile`; `pipeline.kinds.common.ingest` checks their values.

    Attributes
    ----------
    name : str
    n_rows, dim : int
    dtype : numpy dtype
    read : callable
        ``read(first, last)`` returns rows [first, last), shape (last - first, dim).
    ids : pyarrow.Array or None
        User ids, one a row.
    id_type : str
    """

    name: str
    n_rows: int
    dim: int
    dtype: np.dtype[Any]
    read: Callable[[int, int], Vectors]
    ids: pa.Array | None = None
    id_type: str = "none"
    metadata_schema: pa.Schema | None = None

    def blocks(self, batch_rows: int) -> Iterator[RowBlock]:
        """Yield all rows in order; see `VectorFile.blocks`."""
        for first in range(0, self.n_rows, batch_rows):
            last = min(first + batch_rows, self.n_rows)
            ids = None if self.ids is None else self.ids.slice(first, last - first)
            yield RowBlock(first, self.read(first, last), ids)

    def take(self, rows: NDArray[np.int64], out: Vectors, positions: NDArray[np.int64]) -> None:
        """Copy single rows; see `VectorFile.take`."""
        take_by_runs(rows, out, positions, self.dim * self.dtype.itemsize, self.read)


@dataclass(frozen=True)
class ImportedCodes:
    """A product quantizer and one code a vector.

    Attributes
    ----------
    path : Path
        File of the codes.
    codebook : Codebook
        In the terms of the vectors: a centre that codes are relative to is added to the pivots.
        It may lack the component that inner product adds.
    codes : uint8 array, shape (n, M), mapped
    begin : int
        Byte of the first code in the file.
    """

    path: Path
    codebook: Codebook
    codes: NDArray[np.uint8]
    begin: int


@dataclass(frozen=True)
class ImportedEntries:
    """Centroids, float32 (c, dim), and the vertices, uint32 (c,), that searches near them start at."""

    centroids: NDArray[np.float32]
    vertices: NDArray[np.uint32]


@dataclass(frozen=True)
class ImportedIndex:
    """An index as another program left it.

    Attributes
    ----------
    kind : str
        What the manifest calls it: ``diskann``, ``diskann-memory``, ``faiss-hnsw``, ``faiss-nsg``, ``svs`` or
        ``jvector``.
    files : tuple of Path
        All that was read.
    metric : str or None
        What the files say; None where they do not.
    metric_hint : str or None
        Where a file says in a way that differs between programs that it is another than l2, and what it has there.
    vectors : ImportedVectors
        As the user gave them, as far as the files can tell.
    lists : NeighbourLists
    entry : int or None
        Vertex that searches start at, and that the others should be reachable from.
    entries : ImportedEntries or None
    codes : ImportedCodes or None
    no_codes : str
        Why there are none.
    """

    kind: str
    files: tuple[Path, ...]
    metric: str | None
    vectors: ImportedVectors
    lists: NeighbourLists
    entry: int | None = None
    entries: ImportedEntries | None = None
    codes: ImportedCodes | None = None
    no_codes: str = "there are none"
    metric_hint: str | None = None


def check_shape(path: Path, n: int, dim: int) -> None:
    """Refuse sizes that no index of ours can have, before anything is computed from them.

    Raises
    ------
    CorruptFile
        If there is no vector, or the dimension is none.
    InputError
        If there are more vectors than slots.
    """
    if not 1 <= dim <= MAX_DIM:
        raise damaged(path, "dimension", f"1 to {MAX_DIM:,}", f"{dim:,}")
    if n < 1:
        raise damaged(path, "number of vectors", "at least 1", n)
    if n > MAX_VERTICES:
        raise InputError(f"{path}: {n:,} vectors: one index holds at most {MAX_VERTICES:,}; import its parts")


def check_width(path: Path, width: int, what: str) -> None:
    """Refuse lists that a node of ours cannot hold.

    Raises
    ------
    CorruptFile
    """
    if not 1 <= width <= MAX_DEGREE:
        raise damaged(path, what, f"1 to {MAX_DEGREE}", f"{width:,}")


def check_lists(path: Path, block: ListBlock, n: int, offset: Callable[[int, int], int]) -> ListBlock:
    """Return `block` if each degree fits its width and each neighbour is a vertex below `n`.

    Parameters
    ----------
    offset : callable
        ``offset(vertex, j)``: byte of the vertex's j-th neighbour in the file; of its degree for j = -1.

    Raises
    ------
    CorruptFile
        Naming the first vertex that has another list.
    """
    first, neighbours, degrees = block
    width = neighbours.shape[1]
    bad = np.flatnonzero((degrees < 0) | (degrees > width))
    if len(bad):
        v = first + int(bad[0])
        where = f"vertex {v:,}, at byte {offset(v, -1):,}: degree"
        raise damaged(path, where, f"0 to {width}", f"{int(degrees[bad[0]]):,}")
    inside = np.arange(width) < degrees[:, None]
    wrong = inside & (neighbours >= n)
    if wrong.any():
        row, j = (int(i) for i in np.argwhere(wrong)[0])
        where = f"vertex {first + row:,}, neighbour {j}, at byte {offset(first + row, j):,}"
        raise damaged(path, where, f"a vertex below {n:,}", f"{int(neighbours[row, j]):,}")
    return block
