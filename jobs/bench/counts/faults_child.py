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


def pages_of(runs: int, blocks: int, block_bytes: int) -> float:
    """Return the pages that `runs` of so many `blocks` in all touch on average: runs begin anywhere in a page."""
    return runs + (blocks - runs) * block_bytes / BLOCK_BYTES


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
    block_pages = pages_of(runs, blocks, index.native.block_bytes)
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
