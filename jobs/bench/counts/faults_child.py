"""The process of part *faults*: open an index mapped, say how much memory it holds, wait for the limit, count.

Arguments: the folder of the set, and the index.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import numpy as np

from indexmill.jobs.bench.common.dataset import Dataset, read_bin
from indexmill.jobs.bench.common.process import memory_of
from indexmill.reader.lsh import LshIndex

#: Queries that are searched before the limit: what a search holds is had by then.
_WARM = 4


def main() -> None:
    data, index = Dataset(Path(sys.argv[1])), LshIndex(sys.argv[2], "mmap")
    half, n_queries = data.halves()
    queries = np.array(read_bin(data.query)[:n_queries])
    index.search(queries[:_WARM], 1)
    print(memory_of()["RssAnon"], flush=True)
    sys.stdin.readline()
    index.search(queries[:half], 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    counters = index.search(queries[half:], 1).counters
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before
    reads = int(counters["table_reads"].sum() + counters["block_reads"].sum())
    told = {"queries": n_queries - half, "reads": reads, "faults": faults, "missed": faults / reads}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
