"""faiss on a mapped file: open it, say how much memory that takes, wait for the limit, fill the page cache, search."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.dataset import Dataset, K, read_bin
from indexmill.jobs.bench.common.process import memory_of
from indexmill.jobs.bench.common.serving import bytes_fetched, measured
from indexmill.jobs.bench.programs.faiss import load_faiss

#: Queries searched before the limit, so that threads and their tables of visited vertices are there.
_WARM = 16
#: Seconds after which no more queries begin.
_MOST_SECONDS = 15.0
#: Queries that begin at a time; each such group is timed.
GROUP = 20


def main() -> None:
    path, folder, effort, flag, answers = sys.argv[1:]
    queries = np.array(read_bin(Dataset(Path(folder)).query), np.float32)
    faiss = load_faiss()
    index = faiss.read_index(path, getattr(faiss, flag))
    lists = faiss.try_extract_index_ivf(index)
    if lists is not None:
        lists.nprobe = int(effort)
    else:
        graph = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap) else index
        graph.hnsw.efSearch = int(effort)
    index.search(queries[:_WARM], K)
    print(memory_of()["RssAnon"], flush=True)  # a limit of page cache comes on top of it
    sys.stdin.readline()
    half = len(queries) // 2
    _search(index, queries[:half])  # fills the page cache
    faults, read = _faults(), bytes_fetched()
    with measured() as cost:
        distances, ids, seconds = _search(index, queries[half:])
    faults, read = _faults() - faults, bytes_fetched() - read
    np.savez(answers, first=half, distances=distances, ids=ids)
    found = {
        "queries": len(ids), "seconds": cost.wall_s, "cpu_s": cost.cpu_s, "faults": faults,
        "read_bytes": read, "group_s": [round(one, 6) for one in seconds],
    }  # fmt: skip
    print(json.dumps(found))


def _search(index: Any, queries: Any) -> tuple[Any, Any, list[float]]:
    """Search queries in their order until it is late; return distances, ids, and the seconds of each group."""
    begins, found = [time.perf_counter()], []
    for first in range(0, len(queries), GROUP):
        found.append(index.search(queries[first : first + GROUP], K))
        begins.append(time.perf_counter())
        if begins[-1] - begins[0] > _MOST_SECONDS:
            break
    distances, ids = (np.concatenate(part) for part in zip(*found, strict=True))
    return distances, ids, np.diff(begins).tolist()


def _faults() -> int:
    """Page faults of this process that waited for the disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


if __name__ == "__main__":
    main()
