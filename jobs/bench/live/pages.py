"""Part *pages*: processor time a page read, of searches of an index with deletions and of the same index without.

Both are opened anew in each round: where the memory of an opened index lies decides more than the deletions do.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import Any

import indexmill
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.jobs.bench.common.dataset import K
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.live.living import Living, deleted_rows, parameters

#: How an index of each kind is searched; files are in the page cache.
SEARCHES: dict[str, dict[str, Any]] = {
    "graph": {"L": 64, "deterministic": True},
    "ivf": {"nprobe": 16},
    "lsh": {},
}
#: Vectors at most.
MOST_ROWS = 250_000
#: Queries of a search at most.
_QUERIES = 2000
#: Queries that warm an index up.
_FIRST = 50
_ROUNDS = 13


def pages(space: Living, name: str) -> dict[str, Any]:
    """Delete a tenth from an index of each kind, and search it as it was and as it is in turns."""
    n = min(MOST_ROWS, len(space.vectors(name)))
    return {"n": n, **{kind: _pages(space, name, kind, n) for kind in SEARCHES}}


def _pages(space: Living, name: str, kind: str, n: int) -> dict[str, Any]:
    vectors, index = space.vectors(name)[:n], space.out / f"{name}-pages-{kind}"
    if kind == "graph":
        indexmill.build(vectors, index, **parameters(vectors))
    else:
        indexmill.build(vectors, index, kind=kind, seed=SEED, workers=THREADS, force=True)
    whole = index.with_name(f"{index.name}-whole")
    shutil.rmtree(whole, ignore_errors=True)
    shutil.copytree(index, whole, copy_function=os.link)
    indexmill.delete(index, deleted_rows(n), by="vector")
    indexes, rounds = {"whole": whole, "deleted": index}, []
    for number in range(_ROUNDS + 1):
        turns = sorted(indexes, reverse=bool(number % 2))
        rounds.append(
            {turn: _page_us(space, name, indexmill.open(indexes[turn]), SEARCHES[kind]) for turn in turns}
        )
    shutil.rmtree(whole)
    rounds = rounds[1:]  # the first one warms up
    return {
        **{f"{turn}_us": over_rounds([done[turn] for done in rounds]) for turn in indexes},
        "ratio": over_rounds([done["deleted"] / done["whole"] for done in rounds]),
        "rounds": rounds,
    }


def _page_us(space: Living, name: str, opened: Any, how: dict[str, Any]) -> float:
    """Search with one thread; return the microseconds of the processor for each page of bytes that was read."""
    queries = space.queries(name)[:_QUERIES]
    opened.search(queries[:_FIRST], K, threads=1, **how)
    began = time.process_time()
    counters = opened.search(queries, K, threads=1, **how).counters
    seconds = time.process_time() - began
    return round(1e6 * seconds / (float(counters["bytes_read"].sum()) / PAGE_BYTES), 5)
