"""When a graph suits: it has the fewest reads of single queries, at any recall."""

from __future__ import annotations

import math

from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.cost.recommend import FIXED_BYTES, SEARCH_PAGES, Advice, Cost, Task, join_breakeven

#: With R = 32: neighbours and count in a node, codes, and what is held beside codes for each vector.
_LIST_BYTES, _CODE_BYTES, _HELD_BYTES = 132, 32, 3
#: Vectors that a default build takes a second; with builder vamana it takes 10,000.
_RATE = 25_000


def advice(task: Task) -> Advice:
    """Say what a graph with default parameters costs, and why it suits."""
    n, node = task.n_vectors, task.vector_bytes + _LIST_BYTES
    pages = n / max(1, PAGE_BYTES // node) * math.ceil(node / PAGE_BYTES)
    cost = Cost(
        memory=FIXED_BYTES + n * (_CODE_BYTES + _HELD_BYTES),
        disk=pages * PAGE_BYTES + n * _CODE_BYTES,
        build_seconds=n / _RATE,
    )
    because = (
        f"A graph suits (--kind graph): about {SEARCH_PAGES} pages a query at recall 0.95. From about"
        f" {join_breakeven(task):,} queries at once a join with inverted lists (--kind ivf) reads less."
    )
    return Advice("a graph", cost, 1, because)
