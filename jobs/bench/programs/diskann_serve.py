"""Run by DiskANN's own environment: search its index when asked to, in a process that stays.

    python -m indexmill.jobs.bench.programs.diskann_serve INDEX DATA THREADS BEAM_WIDTH [CACHED_NODES]

CACHED_NODES (`num_nodes_to_cache`) are those that searches for a sample of the vectors visit most often, which DiskANN
drew when it built; without them its node cache is off.

A question holds ``size`` (L), ``first`` and ``last`` (queries) and ``way``:

* ``batch``: one `batch_search` with all threads;
* ``single``: a `search` for each query, one after the other, timed from outside: diskannpy has no timers.

Pages are the bytes that this process fetched from storage (``read_bytes`` of /proc/self/io, which counts direct
reads) over 4,096, because diskannpy has no counters either. They are read between two calls, outside the times.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import diskannpy
import numpy as np

from indexmill.jobs.bench.common.dataset import Dataset, K, count_both, read_bin
from indexmill.jobs.bench.common.serving import (
    Calls,
    after_warm_ups,
    bytes_fetched,
    make_row,
    measured,
    serve,
)

PAGE_BYTES = 4096
#: Mechanisms of DiskANN's node cache: nodes by searches for the sample, as its own programs choose them; and any other
#: value than 1 and 2 switches it off.
BY_SAMPLE, NO_CACHE = 1, 0


def main() -> None:
    folder, data = sys.argv[1], Dataset(Path(sys.argv[2]))
    threads, width, *cached = map(int, sys.argv[3:])
    index: Any = None

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        nonlocal index
        if index is None:
            index = open_index(folder, data, threads, *cached)
        ways = {"batch": batch, "single": single}
        return ways[question["way"]](index, data, question, threads, width)

    serve(answer)


class Index:
    """An index whose vectors may stand in another order, with a file that tells their numbers in the input."""

    def __init__(self, index: Any, tags: Any) -> None:
        self._index, self._tags = index, tags

    def batch_search(self, *args: Any, **how: Any) -> Any:
        """Search many queries."""
        found = self._index.batch_search(*args, **how)
        return found._replace(identifiers=self._tags[found.identifiers])

    def search(self, *args: Any, **how: Any) -> Any:
        """Search one query."""
        found = self._index.search(*args, **how)
        return found._replace(identifiers=self._tags[found.identifiers])


def open_index(folder: str, data: Dataset, threads: int, cached_nodes: int = 0) -> Any:
    """Open an index of DiskANN, or an export, which has no file with metric and type but one with tags.

    Raises
    ------
    FileNotFoundError
        If nodes are to be cached and there is no sample: DiskANN would leave its cache off and not say so.
    """
    sample = Path(folder) / "ann_sample_data.bin"
    if cached_nodes and not sample.exists():
        raise FileNotFoundError(f"{sample}: missing; build DiskANN's index again")
    index = diskannpy.StaticDiskIndex(
        folder,
        threads,
        num_nodes_to_cache=cached_nodes,
        cache_mechanism=BY_SAMPLE if cached_nodes else NO_CACHE,
        distance_metric="l2",
        vector_dtype=data.dtype().type,
        dimensions=data.shape()[1],
    )
    tags = Path(folder) / "ann_disk.index.tags"
    return Index(index, np.fromfile(tags, np.uint32)[2:]) if tags.exists() else index


def batch(index: Any, data: Dataset, question: dict[str, Any], threads: int, width: int) -> dict[str, Any]:
    """Search queries ``first`` to ``last`` in one call; return a row of `make_row`, with the mean of ``pages_read``.

    Parameters
    ----------
    index : diskannpy.StaticDiskIndex or Index
    data : Dataset
        Queries and their truth.
    question : dict
        ``size`` (L), ``first`` and ``last``.
    threads, width : int
        Threads of the call, and reads in flight of each query (W).
    """
    first, last, size = question["first"], question["last"], question["size"]
    queries = np.ascontiguousarray(read_bin(data.query)[first:last])
    fetched = bytes_fetched()
    with measured() as cost:
        found = index.batch_search(queries, K, size, num_threads=threads, beam_width=width)
    pages = (bytes_fetched() - fetched) / PAGE_BYTES / len(queries)
    hits = count_both(found.identifiers.astype(np.int64), data, first, last)
    return make_row(size, cost, 1, hits, pages_read=pages)


def single(index: Any, data: Dataset, question: dict[str, Any], threads: int, width: int) -> dict[str, Any]:
    """Search queries ``first`` to ``last`` one after the other; return a row of `make_row`.

    Parameters are those of `batch`; `threads` is not used. Of each query the row has ``pages_read`` and the times of
    `Calls`.
    """
    first, last, size = question["first"], question["last"], question["size"]
    warm_ups, queries = after_warm_ups(read_bin(data.query), first, last)
    for query in warm_ups:
        index.search(query, K, size, beam_width=width)
    pages, results = [], []
    with measured() as cost, Calls() as calls:
        for query in queries:
            fetched = bytes_fetched()
            found = calls.time(index.search, query, K, size, beam_width=width)
            pages.append((bytes_fetched() - fetched) / PAGE_BYTES)
            results.append(found.identifiers.astype(np.int64))
    hits = count_both(np.stack(results), data, first, last)
    return make_row(size, cost, 1, {**hits, "pages_read": np.array(pages), **calls.columns()})


main()
