"""Memory of a join: a fixed part and a part for each query, which decide how many queries are searched at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from indexmill.builders.lists.coded import coded_bytes
from indexmill.builders.lists.scan import MARGIN
from indexmill.formats.errors import BudgetError
from indexmill.formats.ivf.index import IvfFiles
from indexmill.pipeline.join.batches import buffers_bytes
from indexmill.pipeline.join.gather import MERGE_BLOCK_BYTES
from indexmill.pipeline.join.queries import CHECKED, query_block_bytes
from indexmill.pipeline.join.result import GROUP_ROWS
from indexmill.pipeline.join.search import rows_of
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES

#: Queries that are searched at a time, and pairs of them and lists: at most. A join that has no room for the least
#: number is refused: every block scans all the lists it probes once more.
MOST_QUERIES, _MOST_PAIRS, _LEAST_QUERIES = 65_536, 4 << 20, 256
#: Tiles and panels of a thread, and its stack.
_THREAD_BYTES = 6 << 20
#: A row of the result on its way into Parquet, without the ids of users.
_RESULT_ROW_BYTES = 150
#: Pairs of a query and a centroid that are looked at together when lists are chosen: a million, sorted.
_CHOOSE_BYTES = 48 << 20


@dataclass(frozen=True)
class Need:
    """Memory of a search.

    Attributes
    ----------
    fixed : int
        Bytes, however many queries are searched at a time.
    query : int
        Bytes of each query that is.
    n_queries, nprobe : int
    """

    fixed: int
    query: int
    n_queries: int
    nprobe: int

    @property
    def least(self) -> int:
        """The smallest budget that is accepted, in bytes."""
        return self.fixed + self.query * min(_LEAST_QUERIES, max(self.n_queries, 1))

    def block(self, memory: int) -> int:
        """Return the number of queries that are searched at a time."""
        most = min(MOST_QUERIES, max(_LEAST_QUERIES, _MOST_PAIRS // self.nprobe), max(self.n_queries, 1))
        return int(np.clip((memory - self.fixed) // self.query, min(_LEAST_QUERIES, most), most))

    def bytes(self, memory: int) -> int:
        """Return the most that will be held under a budget."""
        return self.fixed + self.query * self.block(memory)


def scan_need(
    dim: int, given: np.dtype[Any], n_queries: int, k: int, nprobe: int, threads: int, block_query: int
) -> Need:
    """Return the memory of a search of lists, without the lists.

    For a query: itself as it is compared; its lists, found, ordered and paired; candidates of every thread, merged and
    ranked, or its code and nearest rows; its results, united with those of another batch.

    Parameters
    ----------
    given : numpy dtype
        Of the queries, which are in memory whole.
    block_query : int
        Bytes that one query takes when a block of them is converted.
    """
    wide = k + MARGIN
    candidates = wide * (24 * threads + 56)
    coded = coded_bytes(dim)
    query = block_query + 4 * dim + 44 * nprobe + max(candidates, coded.query + 12 * k, 92 * k) + 64
    fixed = n_queries * dim * given.itemsize + threads * max(_THREAD_BYTES, coded.thread) + coded.group
    return Need(fixed, query, n_queries, nprobe)


def join_need(
    files: IvfFiles,
    given: np.dtype[Any],
    n_queries: int,
    k: int,
    nprobe: int,
    threads: int,
    searchers: int = 1,
) -> Need:
    """Return the memory of a join.

    Parameters
    ----------
    searchers : int
        Batches that are searched beside each other, each with the next one behind it and a block of queries.
    """
    c = files.centroids
    convert = query_block_bytes(c, given)
    scan = scan_need(c.dim, given, n_queries, rows_of(c, k), nprobe, threads, convert)
    ids = sum(file.bytes for file in files.manifest.files if file.name == "ids.imx")
    directories = 2 * 96 * c.n_lists
    result = GROUP_ROWS * _RESULT_ROW_BYTES + 2 * ids
    choose = _CHOOSE_BYTES if nprobe < c.n_lists else 0
    # chosen from: as they are twice, rounded twice and three times in products; or a searcher's own and a scan's
    centroids = c.centroids.size * max(28, 8 + 8 * searchers)
    fixed = (
        FIXED_BYTES + centroids + 2 * c.rotation_bytes + scan.fixed + (searchers - 1) * coded_bytes(c.dim).group
        + searchers * (buffers_bytes(files) + directories + files.deleted.nbytes)
        + max(result, choose, CHECKED * convert, threads * MERGE_BLOCK_BYTES)
    )  # fmt: skip
    return Need(fixed, searchers * scan.query, n_queries, nprobe)


def learn_bytes(files: IvfFiles, sample: int, k: int) -> int:
    """Return the memory of learning from `sample` queries, beside a join that probes all lists: ranks, homes."""
    c = files.centroids
    largest = max(file.bytes for file in files.batches) // (c.row_bytes + 4)
    homes = 64 * sample * k * c.copies
    return _CHOOSE_BYTES + sample * c.n_lists * 48 + 64 * c.n_lists + 16 * largest + homes


def check_need(files: IvfFiles, need: Need, memory: int, what: str = "two batches of") -> None:
    """Refuse a join whose batches and queries do not fit its memory.

    Raises
    ------
    BudgetError
        Saying what is needed.
    """
    if need.least > memory:
        raise BudgetError(
            f"memory: {what} {files.path} and {need.n_queries:,} queries at nprobe {need.nprobe:,} need "
            f"{need.least:,} bytes, the budget is {memory:,}; give more, ask fewer queries at a time, or build with "
            "smaller --batch-vectors"
        )
