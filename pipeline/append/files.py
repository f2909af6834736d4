"""The files of an extended index: built slots are copied from the larger index, new ones follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.graph.codes import Codebook, write_codes
from indexmill.formats.graph.entries import EntryVertices
from indexmill.formats.graph.file import write_graph
from indexmill.formats.graph.navigation import Navigation
from indexmill.formats.graph.nodes import NodeBlock
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import FileEntry, seal_files
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.index.vectors import VECTORS_NAME, writing_vectors
from indexmill.pipeline.append.addition import Addition, Part
from indexmill.pipeline.append.codes import CodeErrors
from indexmill.pipeline.append.scratch import GrowingGraph, rows_at_once
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.graph.emit import write_starts

#: Bytes of exact vectors gathered at a time.
_VECTOR_BYTES = 4 << 20


@dataclass(frozen=True)
class Extended:
    """All that the files of an extended index are made of.

    Attributes
    ----------
    larger : OpenedIndex
    addition : Addition
    parts_before : int
        Parts of `addition` whose vector ids come before those of `larger`.
    graph : GrowingGraph
    tail : uint32 array, shape (n - built,)
        Vertices from ``graph.built`` on, counted from 0, in slot order.
    order : uint32 array, shape (n,)
        Vertex of `graph` in each slot.
    slots : uint32 array, shape (n,)
        Slot of each vertex.
    entries : EntryVertices
        In vertices of `graph`.
    navigation : Navigation or None
        In slots.
    codebook : Codebook
    code_errors : CodeErrors
        Those of `codebook`.
    """

    larger: OpenedIndex
    addition: Addition
    parts_before: int
    graph: GrowingGraph
    tail: NDArray[np.uint32]
    order: NDArray[np.uint32]
    slots: NDArray[np.uint32]
    entries: EntryVertices
    navigation: Navigation | None
    codebook: Codebook
    code_errors: CodeErrors

    @property
    def is_laid_out_anew(self) -> bool:
        """Whether the built vertices, too, got other slots."""
        return self.graph.built == 0

    @property
    def before(self) -> int:
        """Vectors of the addition whose vector ids come before those of `larger`."""
        return sum(part.n for part in self.addition.parts[: self.parts_before])

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the index is made of, in the order of vector ids."""
        parts, at = self.addition.parts, self.parts_before
        print_of = str(self.larger.manifest.input.get("fingerprint"))
        return (*parts[:at], Part(self.larger.n, self.larger.metadata, print_of), *parts[at:])


def write_files(
    x: Extended, directory: Path, advance: Callable[[int], None]
) -> tuple[str, tuple[FileEntry, ...]]:
    """Write all files but the manifest to `directory`; `advance` counts nodes.

    Returns
    -------
    build_id : str
    files : tuple of FileEntry
    """
    index, n = x.larger, len(x.slots)
    write_graph(
        directory / "graph.imx", index.space.node, n, index.graph.metric, _nodes(x, advance),
        max_norm=index.graph.max_norm, scale=index.graph.scale(),
    )  # fmt: skip
    write_codes(directory / "codes.imx", x.codebook, n, _codes(x))
    _write_vectors(x, directory / VECTORS_NAME)
    entries = EntryVertices(int(x.slots[x.entries.medoid]), x.entries.centroids, x.slots[x.entries.vertices])
    write_starts(directory, n, entries, x.navigation)
    _write_ids(x, directory / "ids.imx")
    _write_metadata(x, directory / METADATA_NAME)
    return seal_files(directory, [p.name for p in directory.iterdir()])


def _tail_blocks(x: Extended) -> Iterator[NDArray[np.int64]]:
    """Yield the tail's vertices in slot order, counted from 0, in blocks."""
    step = rows_at_once(x.larger.space.node)
    for first in range(0, len(x.tail), step):
        yield x.tail[first : first + step].astype(np.int64)


def _nodes(x: Extended, advance: Callable[[int], None]) -> Iterator[NodeBlock]:
    g, degree = x.graph, x.larger.space.node.max_degree

    def block(vectors: NDArray[Any], rows: slice | NDArray[np.int64]) -> NodeBlock:
        advance(len(vectors))
        neighbours = g.neighbours[rows, :degree]
        neighbour_codes = None if g.codes is None else g.codes[neighbours]
        return NodeBlock(vectors, x.slots[neighbours], g.degrees[rows], neighbour_codes)

    first = 0
    for old in x.larger.graph.blocks() if g.built else ():
        last = min(first + len(old), g.built)
        yield block(old.vectors[: last - first], slice(first, last))
        first = last
        if first == g.built:
            break
    for chosen in _tail_blocks(x):
        yield block(g.tail_vectors[chosen], chosen + g.built)


def _codes(x: Extended) -> Iterator[NDArray[np.uint8]]:
    left = x.graph.built
    for codes in x.larger.codes.blocks() if left else ():
        yield codes[:left]
        left -= len(codes[:left])
        if left == 0:
            break
    for chosen in _tail_blocks(x):
        yield x.graph.tail_codes[chosen]


def _write_vectors(x: Extended, path: Path) -> None:
    """Write the exact vectors, if the index keeps them; those of the graph are exact then."""
    kept, graph = x.larger.vectors, x.larger.graph
    if kept is None:
        return
    row = kept.row_format
    step = max(1, _VECTOR_BYTES // (4 * row.dim))
    with writing_vectors(path, row, len(x.order), graph.metric, graph.max_norm) as file:
        for first in range(0, len(x.order), step):
            rows = x.graph.vectors[x.order[first : first + step]]
            file.write(rows.astype(row.element_dtype, copy=False))


def _write_ids(x: Extended, path: Path) -> None:
    before, new = np.uint32(x.before), x.addition.vector_ids
    old = x.larger.vector_ids + before
    new = new + np.where(new < before, np.uint32(0), np.uint32(len(old)))
    users = None
    if x.larger.user_ids is not None and x.addition.user_ids is not None:
        built, rest = x.larger.user_ids[: x.graph.built], x.larger.user_ids[x.graph.built :]
        tail = pa.concat_arrays([rest, x.addition.user_ids]).take(pa.array(x.tail))
        users = pa.concat_arrays([built, tail])
    write_ids(path, np.concatenate([old, new])[x.order], users)


def _write_metadata(x: Extended, path: Path) -> None:
    """Join the tables in vector-id order, a batch at a time, in the larger index's types."""
    if x.larger.metadata is None:
        return
    schema = pa.schema([pa.field(f.name, f.type) for f in x.larger.metadata.schema_arrow])
    tables = [part.metadata for part in x.parts if part.metadata is not None]
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables:
            for batch in table.iter_batches():
                writer.write_table(pa.Table.from_batches([batch]).cast(schema))
