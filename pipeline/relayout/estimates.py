"""What two other formats would read at best: estimates, replayed from what searches expanded.

No reader of ours has these formats. A search in them knows fewer exact distances, so it needs a longer list for the
same recall, which a replay cannot tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.frame import PAGE_BYTES
from indexmill.formats.nodes import NodeFormat
from indexmill.layout.order import Adjacency, invert
from indexmill.layout.star import star_order

if TYPE_CHECKING:
    from indexmill.reader.index import SearchResult

#: Candidates whose exact distance a search over lists alone would read in the end, for each result.
_RERANKED = 2


class Expansions:
    """The vertices that searches expanded.

    Parameters
    ----------
    found : SearchResult
        With a trace, of an index laid out in `order`.
    order : uint32 array, shape (n,)
        Vertex in each slot.

    Attributes
    ----------
    query, vertex : int64 arrays
        Each expansion, query after query, in order.
    results : int64 array, shape (q, k)
        Vertices found; -1 if missing.
    """

    def __init__(self, found: SearchResult, order: NDArray[np.uint32]) -> None:
        import pyarrow.compute as pc

        assert found.trace is not None
        events = found.trace.filter(pc.equal(found.trace["kind"], "expand"))
        self.query: NDArray[np.int64] = events["query"].to_numpy().astype(np.int64)
        self.vertex: NDArray[np.int64] = order[events["vertex"].to_numpy()].astype(np.int64)
        self.results = np.where(found.slots < 0, -1, order[np.maximum(found.slots, 0)].astype(np.int64))

    def __len__(self) -> int:
        return len(self.results)


def lists_per_page(node: NodeFormat) -> int:
    """Return how many neighbour lists share a page that holds nothing else."""
    return PAGE_BYTES // (4 + 4 * node.max_degree)


def split_reads(node: NodeFormat, graph: Adjacency, expansions: Expansions) -> float:
    """Return page reads a query if lists had pages of their own, packed by stars, and vectors others.

    A query reads a page of lists once, and then the vectors of twice as many candidates as it has results.
    """
    shared = lists_per_page(node)
    slots = invert(star_order(graph.neighbours, graph.degrees, shared))
    pages = slots[expansions.vertex].astype(np.int64) // shared
    lists = len(np.unique(expansions.query * len(slots) + pages)) / len(expansions)
    return float(lists + _RERANKED * expansions.results.shape[1] * -(-node.vector_bytes // PAGE_BYTES))


def replicas_per_node(node: NodeFormat) -> int:
    """Return how many lists of other vertices fit behind a node that has its page, or pages, to itself."""
    return (node.group_bytes - node.nodes_per_group * node.node_bytes) // (4 + 4 * node.max_degree)


def replicated_reads(node: NodeFormat, graph: Adjacency, expansions: Expansions) -> float:
    """Return page reads a query if a node's page also held the lists of its nearest neighbours.

    A vertex whose list came with a page read before needs no read, unless it is a result, whose vector is wanted.
    """
    copies = replicas_per_node(node)
    reads, query = 0, -1
    brought: set[int] = set()
    kept: set[Any] = set()
    for q, v in zip(expansions.query.tolist(), expansions.vertex.tolist(), strict=True):
        if q != query:
            query, brought, kept = q, set(), set(expansions.results[q].tolist())
        if v not in brought or v in kept:
            reads += 1
            brought.update(graph.neighbours[v, : min(copies, int(graph.degrees[v]))].tolist())
    return float(reads * node.pages_per_node / len(expansions))
