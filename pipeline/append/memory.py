"""Memory of an append or merge."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.builders.lists.coded import is_coded_dim
from indexmill.builders.lists.exact import BLOCK_BYTES, CODED_QUERIES
from indexmill.builders.partition.build import partitioned_bytes
from indexmill.builders.vamana.build import list_capacity
from indexmill.builders.vamana.navigation import NAVIGATION_VAMANA
from indexmill.layout.order import InputShape
from indexmill.layout.portfolio import ORDERS
from indexmill.pipeline.append.codes import error_bytes, training_bytes
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, check_need, exact_bytes
from indexmill.pipeline.kinds.graph.builder import COUNTED_WORKERS
from indexmill.pipeline.kinds.graph.memory import KEPT_BYTES, certify_bytes
from indexmill.pipeline.kinds.graph.order import order_bytes
from indexmill.pipeline.kinds.graph.shape import leaf_bytes

#: Bytes a vertex of the result: vector ids twice, walk over the edges, slots, and the edges of a batch.
_BYTES_PER_VERTEX = 56
#: Copies as floats of bytes that are compared with floats by brute force without codes.
_FLOAT_COPIES = 3
#: Orders of a tail with no more memory than star packing; any other may take so many bytes, however short the tail is.
_FRUGAL, TAIL_BYTES = frozenset({"identity", "random", "star"}), 64 << 20


def tail_bytes(tail: int, max_degree: int, order: str) -> int:
    """Return the memory of laying out the vectors added since the last build or layout, without their lists."""
    need = tail * (4 * max_degree + 36)
    return need if order in _FRUGAL else max(need, TAIL_BYTES)


@dataclass(frozen=True)
class Growth:
    """Sizes of an extension.

    Attributes
    ----------
    present, added : int
        Vectors of the larger index and those to add.
    laid_out : int
        Those that keep their slots; 0 where all get others.
    ids_bytes : int
        Size of the ids of all.
    """

    present: int
    added: int
    laid_out: int
    ids_bytes: int

    @property
    def n(self) -> int:
        """Vectors of the result."""
        return self.present + self.added

    @staticmethod
    def of(larger: OpenedIndex, added: int) -> Growth:
        """Return the sizes of adding vectors to `larger`, whose ids are taken to be as long as those of `larger`."""
        ids_bytes = larger.ids_bytes * (larger.n + added) // larger.n
        return Growth(larger.n, added, larger.laid_out, ids_bytes)


def held_bytes(larger: OpenedIndex, growth: Growth) -> int:
    """Return the memory of an extension of `larger` beside that of an order; vectors and lists are mapped."""
    node = larger.graph.node_format
    # a search of the certificate holds the codes, unless nodes do
    each = _BYTES_PER_VERTEX + (0 if node.code_bytes else larger.codes.codebook.offsets.size)
    need = FIXED_BYTES + growth.n * each + 3 * growth.ids_bytes
    need += 0 if larger.vectors is None else KEPT_BYTES
    if larger.navigation is not None:
        share = len(larger.navigation.slots) / larger.n
        row = larger.space.dtype.itemsize * node.dim
        need += int(growth.n * share) * (row + 4 * list_capacity(NAVIGATION_VAMANA.max_degree) + 140)
    return need


def needed_bytes(larger: OpenedIndex, growth: Growth) -> int:
    """Return the least memory of an extension of `larger`; orders run on one thread then."""
    node, need = larger.graph.node_format, held_bytes(larger, growth)
    errors = error_bytes(larger, growth.n)
    if growth.laid_out == 0:
        page = max(node.nodes_per_page, 1)
        ordering = order_bytes(larger.order, growth.n, page, node.max_degree, 1, divided=False)
        need += max(ordering, training_bytes(larger, growth.n, 1), errors)
    else:
        tail = growth.n - growth.laid_out
        laid = tail * (4 * node.max_degree + 4) + tail_bytes(tail, node.max_degree, larger.order)
        need += max(laid, errors)
    return need


def expected_bytes(larger: OpenedIndex, growth: Growth, threads: int) -> int:
    """Return about the memory of an extension of `larger` at its worst moment, without the process itself.

    Vectors and lists are mapped. What counts is the largest of the errors of codes, the order, the search for entry
    vertices among new vectors, and the certificate, each on all `threads`; with ids, and slots of all vertices.
    """
    node, n, tail = larger.graph.node_format, growth.n, growth.n - growth.laid_out
    codes = 0 if node.code_bytes else larger.codes.codebook.offsets.size - 1
    ordering = order_bytes(
        larger.order, tail, max(node.nodes_per_page, 1), node.max_degree, threads, divided=False
    )
    if growth.laid_out:  # what the order maps elsewhere is in memory, as are lists
        shape = InputShape(tail, node.max_degree, node.dim, larger.space.dtype)
        ordering += ORDERS[larger.order].scratch_bytes(shape)
        ordering = min(ordering, tail_bytes(tail, node.max_degree, larger.order))
        ordering += tail * (4 * node.max_degree + 4)
    centroids = len(larger.entries.vertices)
    nearer = exact_bytes(growth.added, node.dim, centroids, 1, threads)
    if larger.space.dtype.kind in "iu":  # compared with centroids of floats
        floats = 4 * min(BLOCK_BYTES, growth.added * node.dim)
        by_codes = is_coded_dim(node.dim) and centroids >= CODED_QUERIES
        nearer = nearer + floats if by_codes else _FLOAT_COPIES * floats
    certified = certify_bytes(n, node.dim, codes, threads)
    errors = error_bytes(larger, growth.n)
    return growth.ids_bytes + 12 * n + max(errors, ordering, nearer, certified)


def building_bytes(larger: OpenedIndex, growth: Growth) -> int:
    """Return the memory of an extension that makes all lists anew by `partition`.

    It counts `COUNTED_WORKERS` threads, however many there are: the choice must not depend on them.
    """
    row = larger.space.node.dim * larger.space.dtype.itemsize
    graph = partitioned_bytes(growth.n, row, larger.space.node.max_degree, larger.parameters.saturate)
    return held_bytes(larger, growth) + graph + COUNTED_WORKERS * leaf_bytes(row)


def check_memory(memory: int, larger: OpenedIndex, growth: Growth) -> None:
    """Refuse an extension that does not fit `memory` bytes.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    what = f"{growth.present:,} vectors and {growth.added:,} more take"
    check_need(what, needed_bytes(larger, growth), memory)
