"""The files of an index in another order of its nodes: an external sort by new slot (`pipeline.kinds.graph.emit`).

Nodes, codes and exact vectors are read front to back and written as chunk files of their new slots, which are merged
into pages. Nothing is read at random, and nothing of the index's size is held but what `formats.index.ids` takes for
user ids.
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
from indexmill.formats.graph.entries import EntryVertices
from indexmill.formats.graph.navigation import Navigation
from indexmill.formats.graph.nodes import NodeBlock
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import FileEntry, seal_files
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.layout.order import Adjacency, invert
from indexmill.pipeline.execution.allocator import give_back
from indexmill.pipeline.execution.limits import MOST_NARROW
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, batch_bytes, sort_buffer_bytes, task_bounds
from indexmill.pipeline.kinds.graph.emit import NodeRecords, write_pages, write_starts

#: A rewrite takes a fortieth of the index in buffers, if that is more than the least that a merge works with: more
#: saves nothing, since everything is read and written once.
_SHARE = 40


class Rewrite:
    """An index to be written in another order.

    Parameters
    ----------
    index : OpenedIndex
    vector_ids : uint32 array, shape (n,)
        Vector id in each slot of `index`.
    order : uint32 array, shape (n,)
        Vector id in each slot of the result.
    scratch : Path
        For chunk files, as large as the result together.
    memory : int
        Bytes beside the page cache.
    """

    def __init__(
        self, index: OpenedIndex, vector_ids: NDArray[np.uint32], order: NDArray[np.uint32], scratch: Path, memory: int
    ) -> None:  # fmt: skip
        self._index, self._vector_ids, self._order, self._scratch = index, vector_ids, order, scratch
        code_bytes = len(index.codes.codebook.offsets) - 1
        kept = None if index.vectors is None else index.vectors.row_format
        self._records = NodeRecords(index.graph.node_format, index.n, code_bytes, kept)
        self._record_bytes = self._records.dtype.itemsize
        # tasks, batches and merges are cut to less than `memory` where less is as fast
        self._share_of_memory = min(
            memory, FIXED_BYTES + MOST_NARROW * (index.n * self._record_bytes // _SHARE)
        )

    def write(
        self, directory: Path, advance: Callable[[int], None], lists: Adjacency | None = None
    ) -> tuple[str, tuple[FileEntry, ...]]:
        """Write all files of the index except the manifest to `directory`.

        Parameters
        ----------
        advance : callable
            Counts nodes, each once as it is packed and once as it is written.
        lists : Adjacency, optional
            Neighbour lists by vector id, in place of those of the index.

        Returns
        -------
        build_id : str
        files : tuple of FileEntry
        """
        index, n = self._index, self._index.n
        slots, moved = self._new_slots()
        chunks = self._pack(moved, None if lists is None else (slots, lists), advance)
        give_back()
        write_pages(
            directory, chunks, self._records, index.codes.codebook, index.graph.metric,
            sort_buffer_bytes(self._share_of_memory), advance, max_norm=index.graph.max_norm, scale=index.graph.scale(),
        )  # fmt: skip
        for chunk in chunks:
            Path(chunk).unlink()
        old = index.entries
        entries = EntryVertices(int(moved[old.medoid]), old.centroids, moved[old.vertices])
        navigation = None if index.navigation is None else moved_navigation(index.navigation, moved)
        write_starts(directory, n, entries, navigation)
        users = index.user_ids
        if users is not None:
            users = users.take(pa.array(invert(moved)))
        write_ids(directory / "ids.imx", self._order, users)
        index.release_ids()
        if index.metadata is not None:
            shutil.copyfile(index.path / METADATA_NAME, directory / METADATA_NAME)
        return seal_files(directory, [p.name for p in directory.iterdir()])

    def _new_slots(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return the new slot of each vector id, and of the vertex in each old slot, mapped."""
        n = len(self._order)
        slots = create_npy(self._scratch / "slots.npy", np.uint32, (n,))
        slots[self._order] = np.arange(n, dtype=np.uint32)
        moved = create_npy(self._scratch / "moved.npy", np.uint32, (n,))
        np.take(slots, self._vector_ids, out=moved)
        return slots, moved

    def _pack(
        self, moved: NDArray[np.uint32], renewed: tuple[NDArray[np.uint32], Adjacency] | None,
        advance: Callable[[int], None],
    ) -> list[str]:  # fmt: skip
        """Write the chunk files of all nodes, and return their paths; `renewed`: slots by vector id, and new lists."""
        index, node = self._index, self._index.graph.node_format
        spans = task_bounds(
            index.n, 3 * self._record_bytes, self._share_of_memory, align=node.nodes_per_group
        )
        batch = batch_bytes(len(spans) - 1, self._record_bytes, self._share_of_memory)
        chunks = []
        for first, last in pairwise(spans):
            nodes, codes = index.graph.read_nodes(first, last - first), index.codes.read(first, last - first)
            exact = None if index.vectors is None else index.vectors.read(first, last - first)
            ids = self._vector_ids[first:last]
            block = NodeBlock(nodes.vectors, moved[nodes.neighbours], nodes.degrees, nodes.codes)
            if renewed is not None:
                slots, lists = renewed
                block = NodeBlock(nodes.vectors, slots[lists.neighbours[ids]], lists.degrees[ids])
            chunks.append(str(self._scratch / f"{first}.chunk"))
            self._records.write(chunks[-1], block, codes, exact, moved[first:last], ids, batch)
            advance(last - first)
        return chunks


def moved_navigation(navigation: Navigation, moved: NDArray[np.uint32]) -> Navigation:
    """Return the same navigation graph where the vertex in slot s lives in slot ``moved[s]``, uint32 (n,)."""
    degrees = np.diff(navigation.offsets).astype(np.int32)
    lists = np.zeros((len(degrees), max(1, int(degrees.max()))), np.uint32)
    lists[np.arange(lists.shape[1]) < degrees[:, None]] = navigation.neighbours
    graph = Graph(lists, degrees, navigation.entry)
    return replace(in_slot_order(graph, moved[navigation.slots]), max_degree=navigation.max_degree)
