"""Memory and scratch space of laying an index out again."""

from __future__ import annotations

from collections.abc import Iterable

from indexmill.layout.order import InputShape
from indexmill.layout.portfolio import ORDERS
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, check_need
from indexmill.pipeline.kinds.graph.memory import KEPT_BYTES, certify_bytes
from indexmill.pipeline.kinds.graph.order import metrics_bytes, order_bytes, order_threads
from indexmill.pipeline.relayout.fitting import FROM_FILE

#: Bytes a vertex of an order that is read from a file and checked: four arrays of 64-bit numbers.
_FILE_ORDER_BYTES = 36
#: Nodes on their way into chunk files, and from there to pages; user ids and their copies in another order.
_BUFFER_BYTES, _ID_COPIES = 48 << 20, 3
#: Bytes a vertex of mapped orders and slots while files are written.
_PLACES_BYTES = 16
#: Bytes a vertex, beside its code and user id, while an index is searched: ids, the navigation graph, an order.
_JUDGED_BYTES = 24


def needed_memory(index: OpenedIndex, order: str) -> int:
    """Return the memory beside the page cache of laying `index` out in the order called `order`.

    On one thread: others run only as far as memory goes (`threads_within`).
    """
    page, ids = _page(index), 0 if index.id_type == "none" else _ID_COPIES * index.ids_bytes
    if order == FROM_FILE:
        ordering = index.n * _FILE_ORDER_BYTES
    else:
        ordering = order_bytes(order, index.n, page, index.graph.node_format.max_degree, 1, divided=True)
    kept = 0 if index.vectors is None else KEPT_BYTES
    return FIXED_BYTES + max(_BUFFER_BYTES + kept + ids, ordering + metrics_bytes(page))


def laid_out_bytes(index: OpenedIndex, orders: Iterable[str], copies: int = 1) -> int:
    """Return the scratch space, beside the unpacked graph, of laying `index` out in one of `orders`.

    That is what the order maps while it is made, or chunk files and the index while these are written.

    Parameters
    ----------
    copies : int
        How many times the index is there at once.
    """
    node = index.graph.node_format
    shape = InputShape(index.n, node.max_degree, node.dim, index.space.dtype)
    mapped = max(0 if order == FROM_FILE else ORDERS[order].scratch_bytes(shape) for order in orders)
    written = (1 + copies) * sum(entry.bytes for entry in index.manifest.files)
    return max(mapped, written + _PLACES_BYTES * index.n)


def threads_within(index: OpenedIndex, order: str, memory: int, threads: int) -> int:
    """Return the number of `threads` on which the order called `order` fits `memory` bytes."""
    page, available = _page(index), memory - FIXED_BYTES - metrics_bytes(_page(index))
    degree = index.graph.node_format.max_degree
    return order_threads(order, index.n, page, degree, threads, available, divided=True)


def certificate_memory(index: OpenedIndex, threads: int) -> int:
    """Return the memory beside the page cache of measuring the certificate of `index`, laid out again."""
    pq_bytes = 0 if index.graph.node_format.code_bytes else len(index.codes.codebook.offsets) - 1
    return FIXED_BYTES + certify_bytes(index.n, index.graph.node_format.dim, pq_bytes, threads)


def certificate_threads(index: OpenedIndex, memory: int, threads: int) -> int:
    """Return on how many of `threads` the certificate fits `memory` bytes."""
    return next((some for some in range(threads, 1, -1) if certificate_memory(index, some) <= memory), 1)


def check_certificate(index: OpenedIndex, memory: int) -> None:
    """Refuse a certificate that does not fit `memory` bytes.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    what = f"the certificate of {index.n:,} vectors takes"
    check_need(what, certificate_memory(index, 1), memory, ", or leave --certify out")


def check_memory(index: OpenedIndex, order: str, memory: int) -> None:
    """Refuse a layout that does not fit `memory` bytes.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    need = needed_memory(index, order)
    hint = ", or take --order star" if needed_memory(index, "star") < need else ""
    check_need(f"the order {order} of {index.n:,} vectors takes", need, memory, hint)


def check_judging(index: OpenedIndex, memory: int, option: str, log_bytes: int = 0) -> None:
    """Refuse a budget that does not hold what the reader holds of an open index, and its true neighbours.

    Parameters
    ----------
    option : str
        What asks for it.
    log_bytes : int
        Bytes of a recorded log.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    codes = len(index.codes.codebook.offsets) - 1
    need = FIXED_BYTES + index.n * (codes + _JUDGED_BYTES) + index.ids_bytes + log_bytes
    what = f"counting page reads of {index.n:,} vectors takes"
    check_need(what, need, memory, f", or leave {option} out")


def _page(index: OpenedIndex) -> int:
    return max(index.graph.node_format.nodes_per_page, 1)
