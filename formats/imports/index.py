"""The common form of imported graph indexes: vectors, neighbour lists, and optional parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.graph.nodes import MAX_DEGREE
from indexmill.formats.imports.mapped import damaged
from indexmill.formats.sources.file import RowBlock, Vectors, take_by_runs
from indexmill.formats.sources.joined import MAX_DIM

#: Most vertices whose lists are read at a time.
BLOCK_VERTICES = 8192
#: Most vertices of a graph, whose slots are u32.
MAX_VERTICES = 2**32 - 2


class ListBlock(NamedTuple):
    """Neighbour lists of consecutive vertices.

    Attributes
    ----------
    first : int
        Vertex of the first row.
    neighbours : uint32 array, shape (m, width)
        Entries beyond a vertex's degree are undefined.
    degrees : int32 array, shape (m,)
    """

    first: int
    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]


class NeighbourLists(ABC):
    """Graph of an index, read from front to back: base of the graphs of all formats.

    Attributes
    ----------
    path : Path
    n : int
        Number of vertices.
    width : int
        Most neighbours of a list, 1 to 512.
    """

    path: Path
    n: int
    width: int
    #: Most vertices of a block.
    block_vertices = BLOCK_VERTICES

    def blocks(self) -> Iterator[ListBlock]:
        """Yield all lists, every neighbour checked to be a vertex.

        Raises
        ------
        CorruptFile
            On an invalid degree or neighbour; the message names file, vertex and offset.
        """
        for first in range(0, self.n, self.block_vertices):
            last = min(first + self.block_vertices, self.n)
            yield check_lists(self.path, self._lists(first, last), self.n, self._offset)

    @abstractmethod
    def _lists(self, first: int, last: int) -> ListBlock:
        """Return the lists of vertices [first, last), unchecked."""

    @abstractmethod
    def _offset(self, vertex: int, j: int) -> int:
        """Return the offset in the file of the vertex's j-th neighbour, or of its degree for j = -1."""


@dataclass
class ImportedVectors:
    """Vectors of an index, as a `VectorFile`; `pipeline.kinds.common.ingest` checks their values.

    Attributes
    ----------
    name : str
    n_rows, dim : int
    dtype : numpy dtype
    read : callable
        ``read(first, last)`` returns rows [first, last), shape (last - first, dim).
    ids : pyarrow.Array or None
        User ids, one for each row.
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
    """A product quantizer, and one code for each vector.

    Attributes
    ----------
    path : Path
        File of the codes.
    codebook : Codebook
        For the vectors themselves: a centre that codes are relative to is added to the pivots. The component that inner
        product adds may be missing.
    codes : uint8 array, shape (n, M), mapped
    begin : int
        Offset of the first code in the file.
    """

    path: Path
    codebook: Codebook
    codes: NDArray[np.uint8]
    begin: int


@dataclass(frozen=True)
class ImportedEntries:
    """Centroids, float32 (c, dim), and the vertices, uint32 (c,), where searches near them start."""

    centroids: NDArray[np.float32]
    vertices: NDArray[np.uint32]


@dataclass(frozen=True)
class ImportedIndex:
    """A graph index of another program.

    Attributes
    ----------
    kind : str
        Name in the manifest: ``diskann``, ``diskann-memory``, ``faiss-hnsw``, ``faiss-nsg``, ``svs`` or ``jvector``.
    files : tuple of Path
        All files read.
    metric : str or None
        Metric in the files; None if they have none.
    metric_hint : str or None
        Place and value of a number that means another metric than l2, but a different one in each program.
    vectors : ImportedVectors
        The user's vectors, as far as the files show.
    lists : NeighbourLists
    entry : int or None
        Vertex where searches start, from which all others should be reachable.
    entries : ImportedEntries or None
    codes : ImportedCodes or None
    no_codes : str
        Why there are no codes.
    """

    #: Kind of the index that it becomes.
    becomes: ClassVar = "graph"

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
    """Check that an index of ours can have these sizes, before anything is computed from them.

    Raises
    ------
    CorruptFile
        If there are no vectors, or the dimension is out of range.
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
    """Check that a node of ours can hold lists of this width.

    Raises
    ------
    CorruptFile
        If it cannot.
    """
    if not 1 <= width <= MAX_DEGREE:
        raise damaged(path, what, f"1 to {MAX_DEGREE}", f"{width:,}")


def check_entry(path: Path, where: str, entry: int, n: int) -> None:
    """Check that the vertex where searches start is one of `n`.

    Raises
    ------
    CorruptFile
        If it is not.
    """
    if not 0 <= entry < n:
        raise damaged(path, where, f"a vertex below {n:,}", f"{entry:,}")


def as_degrees(stored: NDArray[np.uint32]) -> NDArray[np.int32]:
    """Return stored degrees as int32; those that do not fit stay too large for any list."""
    return np.minimum(stored, 2**31 - 1).astype(np.int32)


def check_lists(path: Path, block: ListBlock, n: int, offset: Callable[[int, int], int]) -> ListBlock:
    """Return `block` if each degree fits its width and each neighbour is a vertex below `n`.

    Parameters
    ----------
    offset : callable
        ``offset(vertex, j)``: offset in the file of the vertex's j-th neighbour, or of its degree for j = -1.

    Raises
    ------
    CorruptFile
        If not; the message names the first such vertex.
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
