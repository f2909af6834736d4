"""Run by hnswlib: build an index of the given vectors, or search one."""

from __future__ import annotations

import hnswlib
import numpy as np
from asked import answer, question

path, rows, how = question()
index = hnswlib.Index(how["space"], rows.shape[1])
if how["build"]:
    index.init_index(len(rows) + 9, M=how["M"], ef_construction=40, random_seed=1)
    index.add_items(rows, np.arange(len(rows)) * 3 + 10**12, num_threads=1)
    index.mark_deleted(10**12 + 3)
    index.save_index(path)
    answer()
else:
    index.load_index(path)
    index.set_ef(how["L"])
    ids, distances = index.knn_query(rows, how["k"], num_threads=1)
    answer(ids=ids, distances=distances)
