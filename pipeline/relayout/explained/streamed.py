"""A sample of an index read from its files: codes tell which nodes are near, and only those are read.

Nothing is unpacked. Codes are read front to back, a block at a time, and the nodes of the sample wherever they lie, so
an index of any size costs its codes and the pages of the sample. Memory: a block of codes with distances, 8 MiB at 32
bytes a code, and the sample.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.nodes import NodeBlock
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.relayout.explained.code_distances import code_table
from indexmill.pipeline.relayout.region import Region, among, places_of
from indexmill.pipeline.relayout.sample_index import Sample, SampleNodes

#: Nodes that follow each other and are read at a time, in bytes.
BLOCK_BYTES = 4 << 20


def read_sample(index: OpenedIndex, slot: int, size: int, threads: int) -> Sample:
    """Return a sample of the `size` vertices nearest to the one in `slot`, by their codes; a vertex is a slot.

    Raises
    ------
    CorruptFile
        If a page that is read is damaged.
    """
    middle = index.space.compared(index.graph.read_nodes(slot, 1).vectors).astype(np.float32)
    slots, codes = _nearest(index, middle, size)
    nodes = read_slots(index, slots)
    points = np.ascontiguousarray(index.space.compared(nodes.vectors))
    rows = np.arange(len(slots))
    differences = points.astype(np.float32) - middle
    radius = float(np.einsum("ij,ij->i", differences, differences).max())
    return Sample(
        index,
        Region(slots, middle[0], radius),
        SampleNodes(
            points, nodes.vectors, among(nodes.neighbours, nodes.degrees, rows, slots), codes,
            rows.astype(np.uint32), places_of(index.entries.vertices, slots),
        ),
        threads,
    )  # fmt: skip


def _nearest(
    index: OpenedIndex, middle: NDArray[np.float32], size: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Slots, ascending, and codes of the `size` codes nearest to `middle`, (1, dim), ties by the lower slot."""
    table = code_table(index.codes.codebook, middle)[0]
    slots, distances = np.empty(0, np.int64), np.empty(0, np.float32)
    codes, first = np.empty((0, len(table)), np.uint8), 0
    for block in index.codes.blocks():
        near = np.zeros(len(block), np.float32)
        for chunk, row in enumerate(table):
            near += row[block[:, chunk]]
        slots = np.concatenate([slots, np.arange(first, first + len(block))])
        distances, codes = np.concatenate([distances, near]), np.concatenate([codes, block])
        best = np.lexsort((slots, distances))[:size]
        slots, distances, codes = slots[best], distances[best], codes[best]
        first += len(block)
    ascending = np.argsort(slots)
    return slots[ascending].astype(np.uint32), codes[ascending]


def _runs(slots: NDArray[np.uint32], most: int) -> list[tuple[int, int]]:
    """First and number of each run of consecutive `slots`, ascending, none longer than `most`."""
    begins = np.flatnonzero(np.diff(slots.astype(np.int64), prepend=-2) != 1)
    ends = np.append(begins[1:], len(slots))
    return [
        (int(slots[at]), int(min(most, end - at)))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        for at in range(begin, end, most)
    ]


def read_slots(index: OpenedIndex, slots: NDArray[np.uint32]) -> NodeBlock:
    """Return the nodes of `slots`, ascending.

    Raises
    ------
    CorruptFile
        If a page that is read is damaged.
    """
    node = index.graph.node_format
    most = max(1, BLOCK_BYTES // node.group_bytes) * node.nodes_per_group
    return NodeBlock.concatenate([index.graph.read_nodes(*run) for run in _runs(slots, most)])
