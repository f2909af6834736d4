"""Memory of an append or merge."""

from __future__ import annotations

from indexmill.builders.vamana.build import list_capacity
from indexmill.builders.vamana.navigation import NAVIGATION_VAMANA
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.generations.run import check_need
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.graph.memory import KEPT_BYTES

#: Bytes a vertex of the result: vector ids twice, walk over the edges, slots, and the edges of a batch.
_BYTES_PER_VERTEX = 56
#: Orders of a tail with no more memory than star packing; any other may take so many bytes, however short the tail is.
_FRUGAL, TAIL_BYTES = frozenset({"identity", "random", "star"}), 64 << 20


def tail_bytes(tail: int, max_degree: int, order: str) -> int:
    """Return the memory of laying out the vectors added since the last build or layout, without their lists."""
    need = tail * (4 * max_degree + 36)
    return need if order in _FRUGAL else max(need, TAIL_BYTES)


def check_memory(memory: int, larger: OpenedIndex, added: int) -> None:
    """Refuse an extension that does not fit `memory` bytes; vectors and lists are mapped and do not count.

    Parameters
    ----------
    added : int
        Vectors to add; their ids are taken to be as long as those of `larger`.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    n = larger.n + added
    node = larger.graph.node_format
    # a search of the certificate holds the codes, unless nodes do
    each = _BYTES_PER_VERTEX + (0 if node.code_bytes else larger.codes.codebook.offsets.size)
    ids_bytes = larger.ids_bytes * n // larger.n
    tail = n - larger.laid_out
    need = FIXED_BYTES + n * each + 3 * ids_bytes + tail * (4 * node.max_degree + 4)
    need += tail_bytes(tail, node.max_degree, larger.order)
    need += 0 if larger.vectors is None else KEPT_BYTES
    if larger.navigation is not None:
        share = len(larger.navigation.slots) / larger.n
        row = larger.space.dtype.itemsize * node.dim
        need += int(n * share) * (row + 4 * list_capacity(NAVIGATION_VAMANA.max_degree) + 140)
    check_need(f"{larger.n:,} vectors and {added:,} more take", need, memory)
