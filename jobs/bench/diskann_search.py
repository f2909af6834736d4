"""Run by DiskANN's own environment: search its index with several list sizes and print rows as JSON.

    python diskann_search.py INDEX DATA FIRST LAST THREADS BEAM_WIDTH L,L,...

A row holds L, recall, qps and pages_read. Pages are the bytes that this process fetched from storage
(``read_bytes`` of /proc/self/io, which counts direct reads) over 4,096 and queries: diskannpy has no counts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import diskannpy
import numpy as np
from dataset import Dataset, K, read_bin, read_truth, recall_by_distance

PAGE_BYTES = 4096
#: Any other value than 1 and 2 switches DiskANN's node cache off.
NO_CACHE = 0


def bytes_fetched() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        name, value = line.split(": ")
        if name == "read_bytes":
            return int(value)
    raise RuntimeError("/proc/self/io: no line read_bytes")


def measure(
    index: Any, data: Dataset, queries: Any, truth: Any, size: int, threads: int, width: int
) -> dict[str, Any]:
    fetched, began = bytes_fetched(), time.perf_counter()
    found = index.batch_search(queries, K, size, num_threads=threads, beam_width=width)
    seconds, fetched = time.perf_counter() - began, bytes_fetched() - fetched
    recall = recall_by_distance(found.identifiers.astype(np.int64), read_bin(data.base), queries, truth)
    pages = fetched / PAGE_BYTES / len(queries)
    return {"L": size, "recall": recall, "qps": len(queries) / seconds, "pages_read": pages}


def main() -> None:
    folder, data = sys.argv[1], Dataset(Path(sys.argv[2]))
    first, last, threads, width = (int(value) for value in sys.argv[3:7])
    sizes = [int(size) for size in sys.argv[7].split(",")]
    stdout = os.dup(1)
    os.dup2(2, 1)  # DiskANN prints its progress to standard output
    index = diskannpy.StaticDiskIndex(folder, threads, num_nodes_to_cache=0, cache_mechanism=NO_CACHE)
    queries = np.ascontiguousarray(read_bin(data.query)[first:last])
    truth = read_truth(data.truth)[1][first:last]
    rows = [measure(index, data, queries, truth, size, threads, width) for size in [sizes[0], *sizes]]
    with os.fdopen(stdout, "w") as file:
        json.dump(rows[1:], file)  # the first one warmed up


main()
