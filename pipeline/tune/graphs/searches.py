"""Recall and page reads of searches of a graph by their list size, query by query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.kinds.common.judge import Judge
from indexmill.pipeline.tune.curve import Curve, list_sizes, worse_half
from indexmill.pipeline.tune.request import Target
from indexmill.pipeline.tune.sample import Level

if TYPE_CHECKING:
    from indexmill.reader.index import Index

#: Each list is so many times as long as the one before, and the longest has so many candidates.
_STEP, MOST_CANDIDATES = 1.25, 512


def measure_curve(index: Index, level: Level, target: Target, threads: int) -> Curve:
    """Search with longer and longer lists until recall@k is well above `target`, or lists are as long as they get."""
    queries = level.queries
    judge = Judge(level.points, queries, threads)
    sizes: list[int] = []
    recalls: list[NDArray[np.float32]] = []
    pages: list[NDArray[np.float32]] = []
    for size in list_sizes(queries.k, min(MOST_CANDIDATES, level.size), _STEP):
        result = index.search(queries.vectors, queries.k, L=size, threads=threads, deterministic=True)
        hits = np.minimum(judge.hits(result.vector_ids).sum(axis=1), queries.k)
        sizes.append(size)
        recalls.append((hits / queries.k).astype(np.float32))
        pages.append(result.counters["pages_read"].astype(np.float32))
        if worse_half(recalls[-1]) >= target.beyond:
            break
    return Curve(np.array(sizes), np.column_stack(recalls), np.column_stack(pages))
