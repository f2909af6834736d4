"""One side of part *beyond*: open, say how much memory that takes, wait for the limit, search, print JSON.

Arguments: the side, the folder of the set, the index, k, and what it searches with, as JSON. The first half of the
queries fills the page cache, costs are of the second half. Either ends after a time, with the queries asked by then.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.dataset import Dataset, read_bin, read_truth
from indexmill.jobs.bench.common.process import memory_of
from indexmill.jobs.bench.lsh.quality import judge
from indexmill.jobs.bench.lsh.serve import Search, open_lsh, open_srs

#: Queries that are searched before the limit: what a search holds is had by then.
_WARM = 4
#: Seconds after which no more queries begin, and queries that begin at a time.
MOST_SECONDS, CHUNK = 120.0, 25


def main() -> None:
    side, folder, index, k, search = sys.argv[1:]
    data = Dataset(Path(folder))
    opened, _ = open_srs(data) if side == "srs" else open_lsh(data, index, engine=side)
    options = {"k": int(k), **json.loads(search)}
    half, n_queries = data.halves()
    queries = np.array(read_bin(data.query)[:n_queries])
    opened(queries[:_WARM], **options)
    print(memory_of()["RssAnon"], flush=True)
    sys.stdin.readline()
    searched(opened, queries[:half], options)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    rows, costs = searched(opened, queries[half:], options)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults
    n = len(rows)
    truth = read_truth(data.truth)[1][half : half + n]
    judged = judge(rows, read_bin(data.base), queries[half : half + n], truth)
    print(json.dumps({**costs, "queries": n, "faults": faults / n, **judged}))


def searched(search: Search, queries: Any, options: dict[str, Any]) -> tuple[Any, dict[str, float]]:
    """Search queries in their order until it is late; return their rows, and microseconds and reads of a query."""
    rows, reads, began = [], 0.0, time.perf_counter()
    for first in range(0, len(queries), CHUNK):
        found, counters = search(queries[first : first + CHUNK], **options)
        rows.append(found)
        reads += sum(
            float(counters[name].sum()) for name in ("table_reads", "block_reads") if name in counters
        )
        if time.perf_counter() - began > MOST_SECONDS:
            break
    n = sum(map(len, rows))
    return np.concatenate(rows), {"us": 1e6 * (time.perf_counter() - began) / n, "reads": reads / n}


if __name__ == "__main__":
    main()
