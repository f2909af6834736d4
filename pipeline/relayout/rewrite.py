"""The files of an index in another order of its nodes: an external sort by new slot (`pipeline.kinds.graph.emit`).

Nodes and codes are read front to back and written as chunk files of their new slots, which are merged into pages.
Nothing is read at random, and nothing of the index's size is held but what `formats.index.ids` takes for user ids.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.builders.vamana.graph import Graph
from indexmill.builders.vamana.navigation import in_slot_order
from indexmill.formats.graph.entries import EntryVertices, write_entries
from indexmill.formats.graph.navigation import NAVIGATION_NAME, Navigation, write_navigation
from indexmill.formats.graph.nodes import NodeBlock
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import FileEntry, seal_files
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.layout.order import Adjacency, invert
from indexmill.pipeline.execution.allocator import give_back
from indexmill.pipeline.execution.limits import MOST_NARROW
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, batch_bytes, merge_bytes, task_bounds
from indexmill.pipeline.kinds.graph.emit import record_dtype, write_nodes, write_pages

#: A rewrite takes a fortieth of the index in buffers, if that is more than the least that a merge works with: more
#: saves nothing, since everything is read and written once.
_SHARE = 40
#: New slot of each vector id.
_SLOTS = "slots.npy"


def write_files(
    index: OpenedIndex,
    vector_ids: NDArray[np.uint32],
    order: NDArray[np.uint32],
    scratch: Path,
    directory: Path,
    memory: int,
    advance: Callable[[int], None],
    lists: Adjacency | None = None,
) -> tuple[str, tuple[FileEntry, ...]]:
    """Write all files of the index but the manifest to `directory`, laid out in `order`.

    Parameters
    ----------
    vector_ids : uint32 array, shape (n,)
        Vector id in each slot of `index`.
    order : uint32 array, shape (n,)
        Vector id in each slot of the result.
    scratch : Path
        For chunk files, as large as the result together.
    advance : callable
        Counts nodes, each once as it is packed and once as it is written.
    lists : Adjacency, optional
        Neighbour lists by vector id, in place of those of `index`.

    Returns
    -------
    build_id : str
    files : tuple of FileEntry
    """
    n = index.n
    moved = _new_slots(vector_ids, order, scratch)
    chunks = _pack(index, vector_ids, moved, lists, scratch, memory, advance)
    give_back()
    write_pages(
        directory, chunks, index.graph.node_format, n, index.codes.codebook, index.graph.metric,
        merge_bytes(_room(index, memory)), advance,
        max_norm=index.graph.max_norm, scale=index.graph.scale(),
    )  # fmt: skip
    for chunk in chunks:
        Path(chunk).unlink()
    entries = index.entries
    write_entries(
        directory / "entries.imx",
        EntryVertices(int(moved[entries.medoid]), entries.centroids, moved[entries.vertices]),
        n,
    )
    if index.navigation is not None:
        write_navigation(directory / NAVIGATION_NAME, moved_navigation(index.navigation, moved), n)
    users = index.user_ids
    if users is not None:
        users = users.take(pa.array(invert(moved)))
    write_ids(directory / "ids.imx", order, users)
    index.release_ids()
    if index.metadata is not None:
        shutil.copyfile(index.path / METADATA_NAME, directory / METADATA_NAME)
    return seal_files(directory, [p.name for p in directory.iterdir()])


def moved_navigation(navigation: Navigation, moved: NDArray[np.uint32]) -> Navigation:
    """Return the same navigation graph where the vertex in slot s lives in slot ``moved[s]``, uint32 (n,)."""
    degrees = np.diff(navigation.offsets).astype(np.int32)
    lists = np.zeros((len(degrees), max(1, int(degrees.max()))), np.uint32)
    lists[np.arange(lists.shape[1]) < degrees[:, None]] = navigation.neighbours
    graph = Graph(lists, degrees, navigation.entry)
    return replace(in_slot_order(graph, moved[navigation.slots]), max_degree=navigation.max_degree)


def _new_slots(
    vector_ids: NDArray[np.uint32], order: NDArray[np.uint32], scratch: Path
) -> NDArray[np.uint32]:
    """Return the new slot of the vertex in each old one, mapped."""
    n = len(order)
    slots = create_npy(scratch / _SLOTS, np.uint32, (n,))
    slots[order] = np.arange(n, dtype=np.uint32)
    moved = create_npy(scratch / "moved.npy", np.uint32, (n,))
    np.take(slots, vector_ids, out=moved)
    return moved


def _room(index: OpenedIndex, memory: int) -> int:
    """Return the budget that tasks, batches and merges are cut to: `memory`, or less where less is as fast."""
    total = index.n * _record_bytes(index)
    return min(memory, FIXED_BYTES + MOST_NARROW * (total // _SHARE))


def _record_bytes(index: OpenedIndex) -> int:
    return record_dtype(index.graph.node_format, len(index.codes.codebook.offsets) - 1).itemsize


def _pack(
    index: OpenedIndex,
    vector_ids: NDArray[np.uint32],
    moved: NDArray[np.uint32],
    lists: Adjacency | None,
    scratch: Path,
    memory: int,
    advance: Callable[[int], None],
) -> list[str]:
    """Write the chunk files of all nodes; returns their paths."""
    node, room = index.graph.node_format, _room(index, memory)
    spans = task_bounds(index.n, 3 * _record_bytes(index), room, align=node.nodes_per_group)
    batch = batch_bytes(len(spans) - 1, _record_bytes(index), room)
    chunks = []
    slots = None if lists is None else np.load(scratch / _SLOTS, mmap_mode="r")
    for first, last in pairwise(spans):
        nodes = index.graph.read_nodes(first, last - first)
        codes = index.codes.read(first, last - first)
        block = NodeBlock(nodes.vectors, moved[nodes.neighbours], nodes.degrees)
        if lists is not None and slots is not None:
            some = vector_ids[first:last]
            block = NodeBlock(nodes.vectors, slots[lists.neighbours[some]], lists.degrees[some])
        path = scratch / f"{first}.chunk"
        write_nodes(path, node, block, codes, moved[first:last], vector_ids[first:last], index.n, batch)
        chunks.append(str(path))
        advance(last - first)
    return chunks
