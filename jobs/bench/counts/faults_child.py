"""The process of part *faults*: open an index mapped, say how much memory it holds, wait for the limit, count.

Arguments: the file of the queries, and the index.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import numpy as np

from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.disk import BLOCK_BYTES, resident_share
from indexmill.jobs.bench.common.process import memory_of
from indexmill.reader.lsh import LshIndex

#: Queries that are searched before the limit: what a search holds is had by then.
_WARM = 4


def main() -> None:
    queries, path = np.array(read_bin(Path(sys.argv[1]))), Path(sys.argv[2])
    index, half = LshIndex(path, "mmap"), len(queries) // 2
    index.search(queries[:_WARM], 1)
    print(memory_of()["RssAnon"], flush=True)
    sys.stdin.readline()
    index.search(queries[:half], 1)
    held_before = resident_share(path / "tables.imx")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    counters = index.search(queries[half:], 1).counters
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before
    pointers, runs, blocks = (int(counters[name].sum()) for name in ("table_reads", "block_reads", "blocks"))
    # Runs begin anywhere in a page, so that a further block is the first of a page in one of as many cases as a page
    # has blocks.
    block_pages = runs + (blocks - runs) * index.native.block_bytes / BLOCK_BYTES
    told = {
        "queries": len(queries) - half,
        "pointer_reads": pointers,
        "block_reads": runs,
        "block_pages": block_pages,
        "faults": faults,
        "missed": faults / (pointers + block_pages),
        "pointers_held": min(held_before, resident_share(path / "tables.imx")),
        "blocks_held": resident_share(path / "buckets.imx"),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
