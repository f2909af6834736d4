"""Run by scalable-vs."""

from __future__ import annotations

import svs
from asked import answer, question

folder, queries, how = question()
index = svs.Vamana(
    f"{folder}/config",
    svs.GraphLoader(f"{folder}/graph"),
    svs.VectorDataLoader(f"{folder}/data"),
    getattr(svs.DistanceType, how["distance"]),
    query_type=getattr(svs, str(queries.dtype)),
    num_threads=1,
)
index.search_window_size = how["L"]
ids, distances = index.search(queries, how["k"])
answer(ids=ids, distances=distances)
