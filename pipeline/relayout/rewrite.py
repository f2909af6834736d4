"""The files of an index in another order of its nodes: an external sort by new slot (`pipeline.kinds.graph.emit`).

Nodes, codes and exact vectors are read front to back and written as chunk files of their new slots, which are merged
into pages. Nothing is read at random, and nothing of the index's size is held but what `formats.index.ids` takes for
user ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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


@dataclass(frozen=True)
class Renewed:
    """Parts of an index that are written in place of its own; vertices are vector ids of the result.

    Attributes
    ----------
    lists : Adjacency
        Neighbour lists.
    codes : uint8 array, shape (m, M), optional
        Codes, where nodes hold those of their neighbours.
    entries : EntryVertices, optional
    navigation : Navigation, optional
        In slots of the result.
    """

    lists: Adjacency
    codes: NDArray[np.uint8] | None = None
    entries: EntryVertices | None = None
    navigation: Navigation | None = None


class Rewrite:
    """An index to be written in another order.

    Parameters
    ----------
    index : OpenedIndex
    vector_ids : uint32 array, shape (n,)
        Vector id of the result in each slot of `index`; vectors with one from m on are left out.
    order : uint32 array, shape (m,)
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
        self._records = NodeRecords(index.graph.node_format, len(order), code_bytes, kept)
        self._record_bytes = self._records.dtype.itemsize
        # tasks, batches and merges are cut to less than `memory` where less is as fast
        self._share_of_memory = min(
            memory, FIXED_BYTES + MOST_NARROW * (index.n * self._record_bytes // _SHARE)
        )

    def write(
        self, directory: Path, advance: Callable[[int], None], renewed: Renewed | None = None
    ) -> tuple[str, tuple[FileEntry, ...]]:
        """Write all files of the index except the manifest to `directory`.

        Parameters
        ----------
        advance : callable
            Counts nodes, each once as it is packed and once as it is written.
        renewed : Renewed, optional
            Given wherever vectors are left out.

        Returns
        -------
        build_id : str
        files : tuple of FileEntry
        """
        index, n = self._index, len(self._order)
        slots, moved = self._new_slots()
        chunks = self._pack(slots, moved, renewed, advance)
        give_back()
        write_pages(
            directory, chunks, self._records, index.codes.codebook, index.graph.metric,
            sort_buffer_bytes(self._share_of_memory), advance, max_norm=index.graph.max_norm, scale=index.graph.scale(),
        )  # fmt: skip
        for chunk in chunks:
            Path(chunk).unlink()
        write_starts(directory, n, *self._starts(slots, moved, renewed))
        users = index.user_ids
        if users is not None:
            users = users.take(pa.array(self._old_slots(moved)))
        write_ids(directory / "ids.imx", self._order, users)
        index.release_ids()
        if index.metadata is not None:
            self._write_metadata(directory / METADATA_NAME)
        return seal_files(directory, [p.name for p in directory.iterdir()])

    def _starts(
        self, slots: NDArray[np.uint32], moved: NDArray[np.uint32], renewed: Renewed | None
    ) -> tuple[EntryVertices, Navigation | None]:
        """Return entry vertices and navigation graph in slots of the result."""
        old, navigation = self._index.entries, self._index.navigation
        if renewed is not None and renewed.entries is not None:
            new = renewed.entries
            return EntryVertices(
                int(slots[new.medoid]), new.centroids, slots[new.vertices]
            ), renewed.navigation
        entries = EntryVertices(int(moved[old.medoid]), old.centroids, moved[old.vertices])
        return entries, None if navigation is None else moved_navigation(navigation, moved)

    def _old_slots(self, moved: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the slot of `index` of each slot of the result."""
        n = len(self._order)
        if n == self._index.n:
            return invert(moved)
        remain = np.flatnonzero(self._vector_ids < n)
        old = np.empty(n, np.uint32)
        old[moved[remain]] = remain
        return old

    def _write_metadata(self, path: Path) -> None:
        """Copy the rows of the vectors that remain, in the order of vector ids."""
        index, table = self._index, self._index.metadata
        assert table is not None
        if len(self._order) == index.n:
            index.copy_metadata(path)
            return
        remain = np.zeros(index.n, np.bool_)
        remain[index.vector_ids[self._vector_ids < len(self._order)]] = True
        index.release_ids()
        first = 0
        with pq.ParquetWriter(path, table.schema_arrow, compression="zstd") as writer:
            for batch in table.iter_batches():
                writer.write_batch(batch.filter(pa.array(remain[first : first + len(batch)])))
                first += len(batch)

    def _new_slots(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return the new slot of each vector id, and of the vertex in each old slot, mapped; 0 where there is none."""
        n = self._index.n
        slots = create_npy(self._scratch / "slots.npy", np.uint32, (n,))
        slots[self._order] = np.arange(len(self._order), dtype=np.uint32)
        moved = create_npy(self._scratch / "moved.npy", np.uint32, (n,))
        np.take(slots, self._vector_ids, out=moved)
        return slots, moved

    def _pack(
        self, slots: NDArray[np.uint32], moved: NDArray[np.uint32], renewed: Renewed | None,
        advance: Callable[[int], None],
    ) -> list[str]:  # fmt: skip
        """Write the chunk files of all nodes, and return their paths."""
        index, node = self._index, self._index.graph.node_format
        spans = task_bounds(
            index.n, 3 * self._record_bytes, self._share_of_memory, align=node.nodes_per_group
        )
        batch = batch_bytes(len(spans) - 1, self._record_bytes, self._share_of_memory)
        chunks = []
        for first, last in pairwise(spans):
            nodes, codes = index.graph.read_nodes(first, last - first), index.codes.read(first, last - first)
            exact = None if index.vectors is None else index.vectors.read(first, last - first)
            ids, to = self._vector_ids[first:last], moved[first:last]
            if renewed is None:
                block = NodeBlock(nodes.vectors, moved[nodes.neighbours], nodes.degrees, nodes.codes)
            else:
                remain = ids < len(self._order)
                ids, to, codes = ids[remain], to[remain], codes[remain]
                exact = None if exact is None else exact[remain]
                lists = renewed.lists.neighbours[ids]
                near = None if renewed.codes is None else renewed.codes[lists]
                degrees = renewed.lists.degrees[ids]
                block = NodeBlock(nodes.vectors[remain], slots[lists], degrees, near)
            if len(block):
                chunks.append(str(self._scratch / f"{first}.chunk"))
                self._records.write(chunks[-1], block, codes, exact, to, ids, batch)
            advance(last - first)
        return chunks


def moved_navigation(navigation: Navigation, moved: NDArray[np.uint32]) -> Navigation:
    """Return the same navigation graph where the vertex in slot s lives in slot ``moved[s]``, uint32 (n,)."""
    degrees = np.diff(navigation.offsets).astype(np.int32)
    lists = np.zeros((len(degrees), max(1, int(degrees.max()))), np.uint32)
    lists[np.arange(lists.shape[1]) < degrees[:, None]] = navigation.neighbours
    graph = Graph(lists, degrees, navigation.entry)
    return replace(in_slot_order(graph, moved[navigation.slots]), max_degree=navigation.max_degree)
