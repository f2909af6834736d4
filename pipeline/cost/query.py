"""The cost of a query on any device: reads, bytes, rounds of reads, and processor time.

A sample of queries is searched with the index in memory, more than once, so that no device has a part in the time.
A graph is searched through a map of its file, which the page cache then holds; hash tables and lists by the engine that
loads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.reader.index import Index
from indexmill.reader.ivf import IvfIndex
from indexmill.reader.lsh import LshIndex

T = TypeVar("T")
#: Passes over the sample: at least so many, and more until they took so many seconds of the processor.
_PASSES, _SECONDS, _MOST_PASSES = 3, 0.4, 20


@dataclass(frozen=True)
class QueryCost:
    """Means over a sample of queries, on one thread.

    Attributes
    ----------
    kind : str
        Of the index.
    queries : int
        Of the sample.
    compute_s : float
        Processor time of a query in memory: the model's ``T_compute``.
    reads, read_bytes : float
        Reads of a query, ``N_IO``, and bytes of one.
    rounds : float
        Reads of a query that wait for one another: those of a round are in flight together.
    """

    kind: str
    queries: int
    compute_s: float
    reads: float
    read_bytes: float
    rounds: float

    @property
    def width(self) -> float:
        """Reads of a round, about."""
        return self.reads / self.rounds if self.rounds else 0.0

    def facts(self) -> dict[str, Any]:
        """Return all figures by name."""
        return asdict(self)


def graph_cost(path: Path, queries: NDArray[Any], k: int, options: Mapping[str, Any]) -> QueryCost:
    """Measure searches of a graph; `options` are those of `Index.search`.

    Raises
    ------
    InputError, ConfigError, FormatError
        As opening and searching it.
    """
    index = Index(path, "mmap")
    seconds, counters = _timed(lambda: index.search(queries, k, **options).counters, len(queries))
    reads, n_bytes = _means(counters, "pages_read", "bytes_read")
    return QueryCost("graph", len(queries), seconds, reads, _each(n_bytes, reads), *_means(counters, "hops"))


def lsh_cost(path: Path, queries: NDArray[Any], k: int, options: Mapping[str, Any]) -> QueryCost:
    """Measure searches of hash tables with vectors in memory; `options` are those of `LshIndex.search`.

    A radius has two rounds: the pointers to buckets, then their blocks.

    Raises
    ------
    InputError, ConfigError, FormatError
        As opening and searching it.
    """
    index = LshIndex(path, "memory")
    seconds, counters = _timed(lambda: index.search(queries, k, **options).counters, len(queries))
    pointers, blocks, n_bytes, radii = _means(counters, "table_reads", "block_reads", "bytes_read", "radii")
    reads = pointers + blocks
    return QueryCost("lsh", len(queries), seconds, reads, _each(n_bytes, reads), 2 * radii)


def ivf_cost(path: Path, queries: NDArray[Any], k: int, options: Mapping[str, Any]) -> QueryCost:
    """Measure searches of inverted lists; `options` are those of `IvfIndex.search`.

    All lists are one round of sequential reads; where candidates are measured by their exact vectors, that is another.

    Raises
    ------
    InputError, ConfigError, FormatError
        As opening and searching it.
    """
    index = IvfIndex(path, "memory")
    seconds, counters = _timed(lambda: index.search(queries, k, **options).counters, len(queries))
    lists, vectors, n_bytes = _means(counters, "reads", "vector_reads", "bytes_read")
    reads, rounds = lists + vectors, 2.0 if vectors else 1.0
    return QueryCost("ivf", len(queries), seconds, reads, _each(n_bytes, reads), rounds)


def _timed(run: Callable[[], T], queries: int) -> tuple[float, T]:
    """Return the least processor time of a query over some passes, and what the last one returned."""
    if not queries:
        raise InputError("--queries: no query is there; pass a file with some")
    run()  # what is not in memory yet comes in
    least, spent, passes = float("inf"), 0.0, 0
    while passes < _PASSES or (spent < _SECONDS and passes < _MOST_PASSES):
        began = time.process_time()
        found = run()
        took = time.process_time() - began
        least, spent, passes = min(least, took), spent + took, passes + 1
    return least / queries, found


def _means(counters: Mapping[str, NDArray[Any]], *names: str) -> list[float]:
    return [float(np.mean(counters[name])) for name in names]


def _each(n_bytes: float, reads: float) -> float:
    return n_bytes / reads if reads else 0.0
