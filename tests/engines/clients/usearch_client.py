"""Run by usearch."""

from __future__ import annotations

from asked import answer, question
from usearch.index import Index

folder, queries, how = question()
index = Index.restore(f"{folder}/index.usearch", view=how["view"])
index.expansion_search = how["L"]
found = index.search(queries, how["k"], threads=1)
answer(ids=found.keys, distances=found.distances, computed=found.computed_distances)
