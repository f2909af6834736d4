"""Run by diskannpy 0.7.0."""

from __future__ import annotations

import diskannpy
from asked import answer, question

folder, queries, how = question()
index = diskannpy.StaticDiskIndex(
    folder,
    2,
    num_nodes_to_cache=0,
    cache_mechanism=0,
    distance_metric=how["metric"],
    vector_dtype=queries.dtype.type,
    dimensions=queries.shape[1],
)
found = index.batch_search(queries, how["k"], how["L"], num_threads=2, beam_width=how["beam"])
answer(ids=found.identifiers, distances=found.distances)
