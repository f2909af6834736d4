"""The cost of a query on any device: reads, bytes, rounds of reads, and processor time.

A sample of queries is searched more than once, with the index in memory, so that no time of a device is included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError

T = TypeVar("T")
#: Passes over the sample: at least so many, and more until they took so many seconds of processor time.
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


def measured(
    index: Any, queries: NDArray[Any], k: int, options: Mapping[str, Any],
    reads: Sequence[str], rounds: Callable[[Callable[[str], float]], float],
) -> QueryCost:  # fmt: skip
    """Measure searches of an open index; `options` are those of its `search`.

    Parameters
    ----------
    reads : sequence of str
        Counters of the search that count reads.
    rounds : callable
        ``rounds(mean)`` returns the rounds of a query, where ``mean(name)`` is the mean of a counter.

    Raises
    ------
    InputError, ConfigError, FormatError
        As searching it.
    """
    seconds, counters = _timed(lambda: index.search(queries, k, **options).counters, len(queries))

    def mean(name: str) -> float:
        return float(np.mean(counters[name]))

    n_reads = sum(mean(name) for name in reads)
    read_bytes = mean("bytes_read") / n_reads if n_reads else 0.0
    return QueryCost(index.kind, len(queries), seconds, n_reads, read_bytes, rounds(mean))


def _timed(run: Callable[[], T], queries: int) -> tuple[float, T]:
    """Return the least processor time of a query over some passes, and what the last one returned."""
    if not queries:
        raise InputError("queries: no query is there; pass some")
    run()  # what is not in memory yet comes in
    least, spent, passes = float("inf"), 0.0, 0
    while passes < _PASSES or (spent < _SECONDS and passes < _MOST_PASSES):
        began = time.process_time()
        found = run()
        took = time.process_time() - began
        least, spent, passes = min(least, took), spent + took, passes + 1
    return least / queries, found
