"""When hash tables suit: where the memory for a graph is not there, and near neighbours do.

They hold next to nothing, and are many times as large as the vectors.
"""

from __future__ import annotations

import math

from indexmill.pipeline.cost.recommend import Advice, Cost, Task

#: Bytes of an entry of a table with its share of half-full blocks, radii, and tables at 1,000,000 vectors, of SIFT.
_ENTRY_BYTES, _RADII, _TABLES_AT_MILLION = 7.6, 4, 45
#: Tables grow like n to this power (rho, times gamma).
_TABLES_GROWTH = 0.25
#: Insertions into tables that a build makes a second.
_INSERTIONS = 5e6
#: Entries of a bucket, which has a bit in memory.
_BUCKET_ENTRIES = 50
#: Recall@10 that tables of default size reach with about the work of overall ratio 1.05.
_RECALL = 0.4


def advice(task: Task) -> Advice:
    """Say what hash tables with default parameters and their vectors on storage cost, and why they suit."""
    n = task.n_vectors
    tables = max(1.0, _TABLES_AT_MILLION * math.pow(n / 1e6, _TABLES_GROWTH))
    entries = n * tables * _RADII
    cost = Cost(
        memory=entries / 8 / _BUCKET_ENTRIES,
        disk=n * task.vector_bytes + entries * _ENTRY_BYTES,
        build_seconds=entries / _INSERTIONS,
    )
    because = (
        "Hash tables suit (--kind lsh): near neighbours (default parameters promise nothing of how near), a few"
        " hundred small reads a query that need not wait for one another."
    )
    refusal = f"of default size they find about {_RECALL:.0%} of the nearest; results are near, not nearest"
    return Advice("hash tables", cost, 2, because, refusal if task.recall > _RECALL else None)
