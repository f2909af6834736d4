"""A graph index, as targets see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports.rows import DumpBlock, ExportedRows
from indexmill.formats.graph.codes import CodesFile
from indexmill.formats.graph.entries import EntryVertices
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.graph.nodes import NodeBlock
from indexmill.formats.index.vectors import VectorsFile


@dataclass(frozen=True, kw_only=True)
class ExportedGraph(ExportedRows):
    """A graph as targets see it: everything by slot; only the ids are in memory.

    Attributes
    ----------
    graph : GraphFile
    codes : CodesFile
    entries : EntryVertices
    exact : VectorsFile or None
        The exact vectors, if the index has them besides nodes of codes.
    """

    KIND: ClassVar = "graph"
    PARTS: ClassVar = frozenset({"graph", "codes", "order", "pages", "entries", "ids", "metadata"})
    PARTITION: ClassVar = (
        "page of the vector: vectors of a page, and of pages next to each other, are near each other."
    )

    graph: GraphFile
    codes: CodesFile
    entries: EntryVertices
    exact: VectorsFile | None = None

    @property
    def dim(self) -> int:
        """Components of the user's vectors; inner product stores one more."""
        return self.graph.node_format.dim - (self.graph.metric == "ip")

    @property
    def metric(self) -> str:
        """``l2``, ``ip`` or ``cosine``."""
        return self.graph.metric

    @property
    def dtype(self) -> np.dtype[Any]:
        """Component type of `vectors`: that of exact vectors or of nodes, or float32 for sq8 and sq16."""
        node = self.graph.node_format
        if self.exact is not None:
            return self.exact.row_format.element_dtype
        return np.dtype(np.float32) if node.quantized else node.element_dtype

    @cached_property
    def _scale(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        return self.graph.scale()

    def vectors(self, first: int, block: NodeBlock) -> NDArray[Any]:
        """Return the user's vectors of a block that begins with slot `first`, (m, dim).

        They have unit length for cosine, and no added component for inner product; where there are no exact ones, sq8
        and sq16 are decoded.
        """
        values: NDArray[Any] = block.vectors
        if self.exact is not None:
            values = self.exact.read(first, len(block))
        elif self._scale is not None:
            low, step = self._scale
            values = low + step * values.astype(np.float32)
        return values[:, : self.dim]

    def blocks(self) -> Iterator[tuple[int, NodeBlock]]:
        """Yield the first slot and the nodes of blocks of approximately 1 MiB, every page checked."""
        first = 0
        for block in self.graph.blocks():
            yield first, block
            first += len(block)

    def by_row(self) -> ExportedGraph:
        """Return the graph without deleted vectors: slot s is the s-th of the others."""
        return self.without_deleted()

    def rows(self) -> Iterator[DumpBlock]:
        """See `ExportedRows.rows`."""
        per_page = self.graph.node_format.nodes_per_group
        row = 0
        for first, nodes in self.blocks():
            pages = np.arange(first, first + len(nodes), dtype=np.int64) // per_page
            vectors = self.vectors(first, nodes)
            if self.deleted is not None:
                kept = np.flatnonzero(~self.deleted[first : first + len(nodes)])
                pages, vectors, nodes = pages[kept], vectors[kept], self._renumbered(nodes[kept])
            if len(pages):
                yield DumpBlock(row, pages, vectors, nodes)
            row += len(pages)

    @cached_property
    def _rows_of_slots(self) -> NDArray[np.uint32]:
        """Row of each slot, uint32 (n,); of a deleted one that of the next other one."""
        assert self.deleted is not None
        kept = ~self.deleted
        return (np.cumsum(kept) - kept).astype(np.uint32)

    def _renumbered(self, nodes: NodeBlock) -> NodeBlock:
        """Return nodes with the rows of their neighbours, without deleted ones."""
        assert self.deleted is not None
        places = np.arange(nodes.neighbours.shape[1])
        inside = places < nodes.degrees[:, None]
        neighbours = np.where(inside, nodes.neighbours, 0)
        kept = inside & ~self.deleted[neighbours]
        order = np.argsort(~kept, axis=1, kind="stable")  # those that stay come first, in their order
        neighbours = np.take_along_axis(self._rows_of_slots[neighbours], order, axis=1)
        return NodeBlock(nodes.vectors, neighbours, kept.sum(axis=1))
