"""faiss in a process of its own: it builds its HNSW, or searches an HNSW file at several list sizes.

    python -m indexmill.jobs.bench.serve.peer build SETTING
    python -m indexmill.jobs.bench.serve.peer search SETTING

SETTING is JSON; so is what is printed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from indexmill.jobs.bench.common.dataset import K, read_bin


def build(s: dict[str, Any]) -> dict[str, Any]:
    """Build and write an HNSW of the first vectors of a set; the seconds are those of its insertions alone."""
    rows = np.ascontiguousarray(read_bin(Path(s["base"]))[: s["rows"]], np.float32)
    index = faiss.IndexHNSWFlat(rows.shape[1], s["m"])
    index.hnsw.efConstruction = s["ef_construction"]
    began = time.perf_counter()
    index.add(rows)
    seconds = time.perf_counter() - began
    faiss.write_index(index, s["out"])
    return {"seconds": seconds}


def search(s: dict[str, Any]) -> dict[str, Any]:
    """Search a file; return recall@10 and distances of a query at each list size."""
    queries = np.ascontiguousarray(read_bin(Path(s["query"])), np.float32)
    rows = np.ascontiguousarray(read_bin(Path(s["base"]))[: s["rows"]], np.float32)
    exact = faiss.IndexFlatL2(rows.shape[1])
    exact.add(rows)
    truth = exact.search(queries, K)[1]
    whole: Any = faiss.read_index(s["index"])
    graph: Any = faiss.downcast_index(whole.index) if isinstance(whole, faiss.IndexIDMap) else whole
    counted: Any = faiss.cvar
    found = []
    for size in s["list_sizes"]:
        graph.hnsw.efSearch = size
        counted.hnsw_stats.reset()
        ids = whole.search(queries, K)[1]
        hits = sum(len(set(a) & set(b)) for a, b in zip(ids.tolist(), truth.tolist(), strict=True))
        distances = counted.hnsw_stats.ndis / len(queries)
        found.append({"list_size": size, "recall": hits / truth.size, "distances": distances})
    return {"searches": found}


if __name__ == "__main__":
    setting = json.loads(sys.argv[2])
    faiss.omp_set_num_threads(setting["threads"])
    print(json.dumps({"build": build, "search": search}[sys.argv[1]](setting)))
