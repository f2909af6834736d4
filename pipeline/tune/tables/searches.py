"""Quality and cost of searches of hash tables by the candidates that they check, query by query."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.kinds.common.judge import distances_to
from indexmill.pipeline.kinds.common.ratio import query_ratios
from indexmill.pipeline.kinds.common.recall import recall_by_distance
from indexmill.pipeline.kinds.lsh.certify import mapped
from indexmill.pipeline.tune.curve import Curve, list_sizes, recall_with, worse_half
from indexmill.pipeline.tune.request import Target

if TYPE_CHECKING:
    from indexmill.reader.lsh import LshIndex

#: Bytes of vectors that are measured in about the time of a read: the work of a query adds both up.
READ_BYTES = 64 << 10
#: Memory of searches: functions, bitmap and buffers of an index that the page cache holds.
SEARCH_BYTES = 32 << 20
#: Each number of candidates is so many times the one before, and the greatest is the vectors over `_MOST_SHARE`.
_STEP, _MOST_SHARE = 1.5, 4


@dataclass(frozen=True)
class TableQueries:
    """Queries, and what they are compared with.

    Attributes
    ----------
    vectors : array, shape (q, dim)
        As `LshIndex.search` takes them.
    compared : float32 array, shape (q, stored dim)
        As they are compared with `rows`.
    rows : array, shape (n, stored dim)
        Vectors of the index without those that were deleted; may be a mapped file.
    nearest : float array, shape (q, k)
        Squared distances of the true neighbours, ascending.
    places : int64 array, shape (slots,), or None
        Row of each slot of the index, -1 for a deleted one; None where they are the same.
    own : int64 array, shape (q,), or None
        Row of each query, where queries are vectors of the index: it does not count.
    """

    vectors: NDArray[Any]
    compared: NDArray[np.float32]
    rows: NDArray[Any]
    nearest: NDArray[Any]
    places: NDArray[np.int64] | None = None
    own: NDArray[np.int64] | None = None

    @property
    def k(self) -> int:
        """Number of neighbours wanted."""
        return int(self.nearest.shape[1])

    def distances(self, slots: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the squared distances of results, (q, k), ascending, NaN for none, without each query itself."""
        found = slots if self.places is None else np.where(slots < 0, -1, self.places[slots])
        if self.own is not None:
            found = np.where(found == self.own[:, None], -1, found)
        return np.sort(distances_to(self.rows, found, self.compared), axis=1)[:, : self.k]  # NaN sorts last


@dataclass(frozen=True)
class TableCurve:
    """Searches of one index with growing numbers of candidates.

    Attributes
    ----------
    candidates : int64 array, shape (s,)
        S, ascending.
    ratios, recalls, reads, distances : float32 arrays, shape (q, s)
        Of each query: overall ratio, share of the k nearest that were found, reads of tables and buckets, and vectors
        measured. A query that found nothing, or not its own copy, has the approximation ratio of the index.
    vector_bytes : int
    """

    candidates: NDArray[np.int64]
    ratios: NDArray[np.float32]
    recalls: NDArray[np.float32]
    reads: NDArray[np.float32]
    distances: NDArray[np.float32]
    vector_bytes: int

    def curve(self, target: Target) -> Curve:
        """Return quality and work: reads, and distances by their bytes as reads."""
        quality = target.quality(self.ratios) if target.measure == "ratio" else self.recalls
        work = self.reads + self.distances * np.float32(self.vector_bytes / READ_BYTES)
        return Curve(self.candidates, quality, work)

    def at(self, values: NDArray[np.float32], candidates: float) -> NDArray[np.float64]:
        """Return `values`, (q, s), of the reporting half with so many candidates, linear between two numbers."""
        return recall_with(Curve(self.candidates, values, values).half(reporting=True), candidates)


def open_tables(path: Path, memory: int) -> LshIndex:
    """Return the index at `path`, loaded if it takes at most a quarter of `memory`, else through the page cache.

    How it is opened changes neither results nor counts.
    """
    from indexmill.reader.lsh import LshIndex

    if sum(file.stat().st_size for file in path.glob("*.imx")) <= memory // 4:
        return LshIndex(path, "memory")
    return mapped(str(path))


def measure_tables(
    index: LshIndex, asked: TableQueries, target: Target, choices: Choices, threads: int
) -> TableCurve:
    """Search with more and more candidates until both halves of the queries are better than `target`, or all are met.

    Counts and results do not depend on `threads`.
    """
    wanted = min(asked.k + (asked.own is not None), len(index))
    truth = np.sqrt(asked.nearest.astype(np.float64))
    found: list[tuple[NDArray[np.float32], ...]] = []
    sizes = choices.sizes(asked.k, len(asked.rows))
    for size in sizes:
        result = index.search(asked.vectors, wanted, candidates=size, probes=choices.probes, threads=threads)
        squared = asked.distances(result.slots)
        judged = query_ratios(np.sqrt(squared), truth)
        counters = result.counters
        measured = (
            np.where(np.isnan(judged), choices.missed, judged),
            recall_by_distance(squared, asked.nearest),
            counters["table_reads"].astype(np.float64) + counters["block_reads"],
            counters["distances"],
        )
        found.append(tuple(np.asarray(each, np.float32) for each in measured))
        quality = target.quality(found[-1][0]) if target.measure == "ratio" else found[-1][1]
        if worse_half(quality) >= target.beyond:
            break
        if len(found) > 1 and np.array_equal(found[-1][3], found[-2][3]):  # all that the buckets hold
            break
    ratios, recalls, reads, distances = (
        np.column_stack(each).astype(np.float32) for each in zip(*found, strict=True)
    )
    row_bytes = asked.rows.shape[1] * asked.rows.dtype.itemsize
    return TableCurve(np.array(sizes[: len(found)]), ratios, recalls, reads, distances, row_bytes)


@dataclass(frozen=True)
class Choices:
    """Options of the searches that are measured.

    Attributes
    ----------
    probes : int
        Further buckets of each table.
    missed : float
        Overall ratio of a query that has none.
    candidates : int, optional
        The one number of candidates, where it is fixed.
    """

    probes: int
    missed: float
    candidates: int | None = None

    def sizes(self, k: int, n: int) -> list[int]:
        """Return the numbers of candidates to search `n` vectors with, ascending, about geometric."""
        if self.candidates is not None:
            return [self.candidates]
        return list_sizes(k, max(k, n // _MOST_SHARE), _STEP)
