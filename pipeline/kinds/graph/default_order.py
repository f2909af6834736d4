"""The order of a graph whose job names none: the one with the fewest page reads, where its lists fit the memory.

Lists and vectors are mapped files, so the budget does not count them; but an order that is chosen for the user must not
read them from the disk again and again. Nor are float16 vectors widened for it, at twice their space. Where not even a
district of the order for less memory fits, it is the only one.
"""

from __future__ import annotations

from dataclasses import replace

from indexmill.layout.order import InputShape
from indexmill.layout.portfolio import ORDERS
from indexmill.pipeline.execution.limits import MOST_NARROW
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, THREAD_BYTES
from indexmill.pipeline.kinds.graph.districts.plan import district_narrow_stages, n_districts
from indexmill.pipeline.kinds.graph.parameters import Order
from indexmill.pipeline.kinds.graph.shape import GraphShape

#: Takes its place in less memory.
_FRUGAL: Order = "star"


def with_order(shape: GraphShape, memory: int) -> GraphShape:
    """Return `shape` with the order that its job names or, if it names none, that suits its memory."""
    p = shape.parameters
    is_widened = (
        not shape.is_comparable and shape.dtype.itemsize == 2
    )  # float16, which a builder takes as it is
    if "order" in p.model_fields_set or (not is_widened and FIXED_BYTES + _touched_bytes(shape) <= memory):
        return shape
    frugal = replace(shape, parameters=p.model_copy(update={"order": _FRUGAL}))
    left = memory - FIXED_BYTES - (MOST_NARROW - 1) * THREAD_BYTES  # workers must not reach the order
    tasks = district_narrow_stages(frugal, memory).values()
    return shape if any(task.bytes > left for task in tasks) else frugal


def order_scratch(shape: GraphShape) -> int:
    """Return the scratch space of stage *order* while it runs; none where it joins districts."""
    p = shape.parameters
    if n_districts(shape) > 1:
        return 0
    dtype = shape.dtype if shape.is_comparable else "float32"
    return ORDERS[p.order].scratch_bytes(InputShape(shape.n, p.max_degree, shape.dim, dtype))


def _touched_bytes(shape: GraphShape) -> int:
    """Return the bytes that the order reads in no order: vectors, the graph, its own memory and lists."""
    p = shape.parameters
    vector = shape.row_bytes if shape.is_comparable else shape.comparable_bytes
    a_vertex = vector + 4 * (p.max_degree + 1) + ORDERS[p.order].memory.a_vertex
    return shape.n * a_vertex + order_scratch(shape)
