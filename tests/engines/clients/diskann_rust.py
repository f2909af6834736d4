"""Run by diskannpy-rust 0.49.1."""

from __future__ import annotations

import diskannpy
import numpy as np
from asked import answer, question

folder, queries, how = question()
index = diskannpy.StaticDiskIndex(
    folder, 1, how["beam"], distance_metric="l2", vector_dtype=queries.dtype.type, dimensions=queries.shape[1]
)
found = index.batch_search(queries, how["k"], how["L"], 1)
stats = {name: float(value) for name, value in dict(found.search_stats).items()}
answer(ids=np.array(found.identifiers), names=np.array(list(stats)), values=np.array(list(stats.values())))
