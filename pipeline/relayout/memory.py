"""What laying an index out again takes in memory."""

from __future__ import annotations

from indexmill.formats.errors import BudgetError
from indexmill.pipeline.budget import FIXED_BYTES
from indexmill.pipeline.extend_index import OpenedIndex
from indexmill.pipeline.relayout.fitting import FROM_FILE

#: Bytes a vertex while an order is fitted, that of the result included. The others also hold the reverse graph, of 4
#: bytes an edge, or what it takes to place vectors.
_ORDER_BYTES = {"identity": 12, "random": 20, "star": 30, FROM_FILE: 24}
_OTHER_ORDER_BYTES = 100
#: Nodes on their way into chunk files, and from there to pages; user ids and their copies in another order.
_BUFFER_BYTES, _ID_COPIES = 48 << 20, 3


def needed_memory(index: OpenedIndex, order: str) -> int:
    """Return the bytes beside the page cache that it takes to lay `index` out in the order called `order`."""
    each = _ORDER_BYTES.get(order, _OTHER_ORDER_BYTES + 4 * index.graph.node_format.max_degree)
    ids = 0 if index.id_type == "none" else _ID_COPIES * index.ids_bytes
    return FIXED_BYTES + max(_BUFFER_BYTES + ids, index.n * each)


def check_memory(index: OpenedIndex, order: str, memory: int) -> None:
    """Refuse a layout that does not fit `memory` bytes.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    need = needed_memory(index, order)
    if need > memory:
        raise BudgetError(
            f"memory: the order {order} of {index.n:,} vectors takes {need:,} bytes beside the page cache, and the "
            f"budget is {memory:,}; give at least {need:,} bytes with --memory, or take --order star"
        )
