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
from indexmill.formats.pagefile.frame import PAGE_BYTES

T = TypeVar("T")
#: Counter of the pages of ids, and the types of ids that are text.
_ID_READS, _TEXT = "id_pages_read", ("string", "binary")
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
    id_rounds : float
        Those of them that look up the ids of results, where these are counted.
    """

    kind: str
    queries: int
    compute_s: float
    reads: float
    read_bytes: float
    rounds: float
    id_rounds: float = 0.0

    @property
    def width(self) -> float:
        """Reads of a round, about."""
        return self.reads / self.rounds if self.rounds else 0.0

    def facts(self) -> dict[str, Any]:
        """Return all figures by name."""
        return asdict(self)


def measured(
    index: Any, queries: NDArray[Any], k: int, options: Mapping[str, Any],
    reads: Sequence[str], rounds: Callable[[Callable[[str], float]], float], ids_at_once: int | None = None,
) -> QueryCost:  # fmt: skip
    """Measure searches of an open index; `options` are those of its `search`.

    Parameters
    ----------
    reads : sequence of str
        Counters of the search that count reads.
    rounds : callable
        ``rounds(mean)`` returns the rounds of a query, where ``mean(name)`` is the mean of a counter.
    ids_at_once : int, optional
        Reads of ids of results that a query has in flight. If given, they count, as at a URL, where they are rounds of
        requests.

    Raises
    ------
    InputError, ConfigError, FormatError
        As searching it.
    """
    seconds, counters = _timed(lambda: index.search(queries, k, **options).counters, len(queries))

    def mean(name: str) -> float:
        return float(np.mean(counters[name]))

    n_id_reads = 0.0 if ids_at_once is None else mean(_ID_READS)
    n_reads = sum(mean(name) for name in reads) + n_id_reads
    read_bytes = (mean("bytes_read") + PAGE_BYTES * n_id_reads) / n_reads if n_reads else 0.0
    id_rounds = 0.0
    if ids_at_once is not None:
        id_rounds = float(_rounds_of_ids(counters[_ID_READS], index.native.id_type, ids_at_once).mean())
    return QueryCost(
        index.kind, len(queries), seconds, n_reads, read_bytes, rounds(mean) + id_rounds, id_rounds
    )


def _rounds_of_ids(reads: NDArray[Any], id_type: str, at_once: int) -> NDArray[Any]:
    """Return the rounds in which each query reads its pages of ids, about: text lies where the first round says."""
    before_text = 1 if id_type in _TEXT else 0
    return np.where(reads > 0, before_text + np.ceil(reads / at_once), 0)


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
