"""Pages of lists and vectors in three formats: two alternatives to the node format.

Indexmill writes and reads neither; they are there to be replayed (`pipeline.relayout.explained.replay`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.nodes import NodeFormat
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.layout.order import Adjacency, invert


@dataclass(frozen=True)
class Placement:
    """Addresses in one format.

    Attributes
    ----------
    list_unit : int64 array, shape (n,)
        What is read for a vertex's list: a page, or the pages of a node.
    lists : int64 array, shape (n, c)
        Vertices whose lists come with that; a vertex repeated where they are fewer than c.
    vector_unit : int64 array, shape (n,)
        What is read for its vector, numbered with the others: the same, if it stands there too.
    list_pages, vector_pages : int
        Pages of such a unit.
    """

    list_unit: NDArray[np.int64]
    lists: NDArray[np.int64]
    vector_unit: NDArray[np.int64]
    list_pages: int
    vector_pages: int

    @property
    def n_units(self) -> int:
        """One more than the largest number of a unit."""
        return int(max(self.list_unit.max(), self.vector_unit.max())) + 1


def lists_per_page(node: NodeFormat) -> int:
    """Return the number of neighbour lists that share a page that holds nothing else; 0 if one is larger."""
    return PAGE_BYTES // node.list_bytes


def copies_per_node(node: NodeFormat) -> int:
    """Return the number of other vertices' lists that fit behind a node that has its page, or pages, to itself."""
    return (node.group_bytes - node.head_bytes - node.nodes_per_group * node.node_bytes) // node.list_bytes


def apart(node: NodeFormat, order: NDArray[np.uint32]) -> Placement:
    """Return lists and vectors apart: lists in `order`, vectors in the same on pages behind them.

    Neither crosses a page, unless it is larger than one.
    """
    shared, vectors = max(1, lists_per_page(node)), max(1, PAGE_BYTES // node.vector_bytes)
    unit, lists = _in_order(order, shared)
    vector_unit, _ = _in_order(order, vectors)
    pages = [-(-size // PAGE_BYTES) for size in (node.list_bytes, node.vector_bytes)]
    return Placement(unit, lists, vector_unit + unit.max() + 1, *pages)


def replicated(node: NodeFormat, graph: Adjacency) -> Placement:
    """Return the format that there is, one node a page, with lists of a node's nearest neighbours in the slack."""
    copies, n = copies_per_node(node), len(graph.degrees)
    own = np.arange(n, dtype=np.int64)
    nearest = graph.neighbours[:, :copies].astype(np.int64)
    there = np.arange(nearest.shape[1]) < graph.degrees[:, None]
    lists = np.column_stack([own, np.where(there, nearest, own[:, None])])
    return Placement(own, lists, own, node.pages_per_node, node.pages_per_node)


def _in_order(order: NDArray[np.uint32], shared: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Unit of each vertex, and the vertices of that unit, where `shared` of them follow each other on each."""
    n, slots = len(order), invert(order).astype(np.int64)
    unit = slots // shared
    mates = np.minimum(unit[:, None] * shared + np.arange(shared), n - 1)
    return unit, order[mates].astype(np.int64)
