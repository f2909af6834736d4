"""Memory and scratch space of a compaction."""

from __future__ import annotations

from indexmill.builders.vamana.build import list_capacity
from indexmill.builders.vamana.connect import connect_bytes
from indexmill.builders.vamana.navigation import NAVIGATION_VAMANA
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, check_need
from indexmill.pipeline.relayout.memory import certificate_memory, laid_out_bytes, needed_memory
from indexmill.pipeline.relayout.unpacked import unpacked_bytes

#: Bytes a vertex while vertices are numbered and an order becomes an order of the result: ids, ranks, slots.
_BYTES_PER_VERTEX = 24
#: Bytes a vertex of the navigation graph beside its vector and its list.
_NAVIGATION_BYTES = 140


def needed_bytes(index: OpenedIndex, order: str, certified: bool = True) -> int:
    """Return the least memory of a compaction; vectors and lists are mapped and do not count.

    Parameters
    ----------
    certified : bool
        Whether the result is measured.
    """
    n = index.n
    started = 0
    if index.navigation is not None:
        row = index.space.dtype.itemsize * index.graph.node_format.dim
        each = row + 4 * list_capacity(NAVIGATION_VAMANA.max_degree) + _NAVIGATION_BYTES
        started = len(index.navigation.slots) * each + 8 * n
    return max(
        FIXED_BYTES + _BYTES_PER_VERTEX * n + index.ids_bytes,
        FIXED_BYTES + max(connect_bytes(n), started),
        needed_memory(index, order) + 8 * n,
        certificate_memory(index, 1) if certified else 0,
    )


def check_memory(index: OpenedIndex, order: str, memory: int, certified: bool = True, held: int = 0) -> None:
    """Refuse a compaction that does not fit `memory` bytes; parameters as of `needed_bytes`.

    Parameters
    ----------
    held : int
        Bytes that are held meanwhile for what comes after.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    need = held + needed_bytes(index, order, certified)
    check_need(f"compacting {index.n:,} vectors takes", need, memory)


def scratch_bytes(index: OpenedIndex) -> int:
    """Return the room that a compaction fills: the graph, unpacked and repaired, and that of laying it out."""
    node = index.graph.node_format
    lists = index.n * (4 * node.max_degree + 4 + node.code_bytes)
    return unpacked_bytes(index, True) + lists + laid_out_bytes(index, [index.order])
