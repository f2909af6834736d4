"""The files of an extended index: old slots copied from the larger index, new ones behind them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.builders.pq import encode_pq
from indexmill.formats.codes import write_codes
from indexmill.formats.entries import EntryVertices, write_entries
from indexmill.formats.graph import write_graph
from indexmill.formats.ids import write_ids
from indexmill.formats.manifest import FileEntry, seal_files
from indexmill.formats.metadata import METADATA_NAME
from indexmill.formats.navigation import NAVIGATION_NAME, Navigation, write_navigation
from indexmill.formats.nodes import NodeBlock
from indexmill.pipeline.extend_addition import Addition
from indexmill.pipeline.extend_index import OpenedIndex
from indexmill.pipeline.extend_scratch import GrowingGraph

#: New slots assembled at a time.
_BLOCK = 65536


@dataclass(frozen=True)
class Extended:
    """All that the files of an extended index are made of.

    Attributes
    ----------
    larger : OpenedIndex
    addition : Addition
    larger_first : bool
        Whether the vector ids of `larger` come first, or those of `addition`.
    graph : GrowingGraph
    new : uint32 array, shape (addition.n,)
        New vertices, counted from 0, in slot order.
    order : uint32 array, shape (n,)
        Vertex of `graph` in each slot.
    slots : uint32 array, shape (n,)
        Slot of each vertex.
    entries : EntryVertices
        In vertices of `graph`.
    navigation : Navigation or None
        In slots.
    """

    larger: OpenedIndex
    addition: Addition
    larger_first: bool
    graph: GrowingGraph
    new: NDArray[np.uint32]
    order: NDArray[np.uint32]
    slots: NDArray[np.uint32]
    entries: EntryVertices
    navigation: Navigation | None


def write_files(
    x: Extended, directory: Path, threads: int, advance: Callable[[int], None]
) -> tuple[str, tuple[FileEntry, ...]]:
    """Write all files but the manifest to `directory`; `advance` counts nodes.

    Returns
    -------
    build_id : str
    files : tuple of FileEntry
    """
    index, n = x.larger, len(x.slots)
    scale = index.space.scale
    write_graph(
        directory / "graph.imx",
        index.space.node,
        n,
        index.graph.metric,
        _nodes(x, advance),
        max_norm=index.graph.max_norm,
        scale=None if scale is None else (scale.minimum, scale.step),
    )
    new_codes = (
        encode_pq(index.space.as_given(x.graph.vectors[rows]), index.codes.codebook, threads)
        for rows in _new_rows(x)
    )
    write_codes(
        directory / "codes.imx", index.codes.codebook, n, itertools.chain(index.codes.blocks(), new_codes)
    )
    entries = EntryVertices(x.entries.medoid, x.entries.centroids, x.slots[x.entries.vertices])
    write_entries(directory / "entries.imx", entries, n)
    if x.navigation is not None:
        write_navigation(directory / NAVIGATION_NAME, x.navigation, n)
    _write_ids(x, directory / "ids.imx")
    _write_metadata(x, directory / METADATA_NAME)
    return seal_files(directory, [p.name for p in directory.iterdir()])


def _new_rows(x: Extended) -> Iterator[NDArray[np.int64]]:
    """Yield the new vertices in slot order, in blocks of row numbers of the graph."""
    for first in range(0, len(x.new), _BLOCK):
        yield x.new[first : first + _BLOCK].astype(np.int64) + x.graph.present


def _nodes(x: Extended, advance: Callable[[int], None]) -> Iterator[NodeBlock]:
    g, degree = x.graph, x.larger.space.node.max_degree
    first = 0
    for block in x.larger.graph.blocks():
        rows = slice(first, first + len(block))
        yield NodeBlock(block.vectors, x.slots[g.neighbours[rows, :degree]], g.degrees[rows])
        first += len(block)
        advance(len(block))
    for chosen in _new_rows(x):
        vectors = x.larger.space.stored(g.vectors[chosen])
        yield NodeBlock(vectors, x.slots[g.neighbours[chosen, :degree]], g.degrees[chosen])
        advance(len(chosen))


def _write_ids(x: Extended, path: Path) -> None:
    old, new = x.larger.vector_ids, x.addition.vector_ids[x.new]
    if x.larger_first:
        new = new + np.uint32(len(old))
    else:
        old = old + np.uint32(len(new))
    users = None
    if x.larger.user_ids is not None and x.addition.user_ids is not None:
        users = pa.concat_arrays([x.larger.user_ids, x.addition.user_ids.take(pa.array(x.new))])
    write_ids(path, np.concatenate([old, new]), users)


def _write_metadata(x: Extended, path: Path) -> None:
    """Join the tables in vector-id order, a batch at a time, in the larger index's types."""
    if x.larger.metadata is None or x.addition.metadata is None:
        return
    schema = pa.schema([pa.field(f.name, f.type) for f in x.larger.metadata.schema_arrow])
    tables = [x.larger.metadata, x.addition.metadata]
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables if x.larger_first else reversed(tables):
            for batch in table.iter_batches():
                writer.write_table(pa.Table.from_batches([batch]).cast(schema))
