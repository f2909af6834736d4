"""When a graph suits: it has the fewest reads of single queries, at any recall."""

from __future__ import annotations

from dataclasses import replace

from indexmill.formats.errors import BudgetError
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.cost.recommend import SEARCH_PAGES, Advice, Cost, Task, join_breakeven
from indexmill.pipeline.kinds.graph.candidates import open_formats
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape

#: Vectors that a default build takes a second; with builder vamana it takes 10,000.
_RATE = 25_000


def advice(task: Task) -> Advice:
    """Say what a graph with default parameters within the memory of searches costs, and why it suits."""
    shape = _shape(task)
    cost = Cost(
        memory=shape.held_bytes,
        disk=shape.node.n_pages(shape.n) * PAGE_BYTES + shape.all_codes_bytes,
        build_seconds=shape.n / _RATE,
    )
    because = (
        f"A graph suits (--kind graph): about {SEARCH_PAGES} pages a query at recall 0.95. From about"
        f" {join_breakeven(task):,} queries at once a join with inverted lists (--kind ivf) reads less."
    )
    return Advice("a graph", cost, 1, because)


def _shape(task: Task) -> GraphShape:
    """Return the first shape that a build within the memory of searches tries; the least one if none fits it."""
    limit = {} if task.memory is None else {"search_memory": str(task.memory)}
    shape = GraphShape(task.n_vectors, task.dim, task.dtype, 0.0, Parameters.model_validate(limit))
    try:
        first = open_formats(shape)[0]
    except BudgetError:
        shape = replace(shape, parameters=Parameters(pq_bytes=1, pq_rotation="none"))
        first = open_formats(shape)[0]
    return replace(shape, parameters=first.applied(shape.parameters))
