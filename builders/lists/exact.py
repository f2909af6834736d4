"""Exact nearest neighbours among streamed vectors: truth for certificates, scores and `indexmill truth`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.coded import can_be_coded, merge_coded
from indexmill.builders.lists.coding import CodedQueries, code_queries
from indexmill.builders.lists.rows import Lists, RowFormat, plain_rows
from indexmill.builders.lists.scan import MARGIN, Nearest, nothing, scan, united
from indexmill.builders.nearest.pairs import Pairs
from indexmill.reader.threads import BlockPool

#: Bytes of rows compared at a time.
BLOCK_BYTES = 8 << 20
#: Rows of a task of products.
_LIST_ROWS = 1024
#: Queries from which codes of floats are faster: fewer than in `scan`, since the nearest of earlier blocks are known.
CODED_QUERIES = 32
#: Most queries compared at a time; most pairs of queries and lists; fewest queries compared at a time.
QUERY_BLOCK, _MOST_PAIRS, _LEAST_QUERIES = 65_536, 4 << 20, 256


class ExactSearch:
    """Keeper of the k nearest vectors to each query, given vectors block by block in any order.

    Memory: 12 bytes for each query and neighbour, `BLOCK_BYTES` besides the block that is added (and its float32 copy,
    if it must be converted), 32 MiB (or codes of a group of rows and what each thread takes, `coded.coded_bytes`, if
    these are more), and `exact_query_bytes` for each query compared at a time.

    Parameters
    ----------
    queries : array, shape (n_queries, dim)
    k : int
    threads : int
        Does not change the result.
    query_block : int
        Most queries compared at a time; does not change the result.

    Attributes
    ----------
    found : Nearest
        The nearest of all vectors so far.
    """

    def __init__(
        self,
        queries: NDArray[Any],
        k: int,
        threads: int = 1,
        *,
        query_block: int = QUERY_BLOCK,
    ) -> None:
        self.found = nothing(len(queries), k)
        self._queries, self._k, self._threads = queries, k, threads
        self._query_block = query_block
        self._coded: tuple[int, CodedQueries] | None = None

    def add(self, first: int, rows: NDArray[Any]) -> None:
        """Add vectors, (m, dim), whose ids start at `first`."""
        step = max(1, BLOCK_BYTES // (rows.shape[1] * rows.dtype.itemsize))
        for at in range(0, len(rows), step):
            self._add_block(first + at, rows[at : at + step])

    def _add_block(self, first: int, rows: NDArray[Any]) -> None:
        same = rows.dtype == self._queries.dtype and rows.dtype.name in ("uint8", "int8")
        if not same and rows.dtype.name not in ("float32", "float16"):
            rows = rows.astype(np.float32)
        form, n = plain_rows(rows.dtype, rows.shape[1]), len(self._queries)
        by_codes = can_be_coded(form) and min(self._query_block, n) >= CODED_QUERIES
        lists, centroids = _as_lists(
            first, rows, len(rows) if by_codes else _LIST_ROWS, not same and not by_codes
        )
        n_lists = len(lists.sizes)
        step = min(self._query_block, max(_LEAST_QUERIES, _MOST_PAIRS // n_lists))
        for at in range(0, n, step):
            queries = self._queries[at : at + step]
            pairs = Pairs(np.tile(np.arange(len(queries)), n_lists), np.arange(n_lists + 1) * len(queries))
            part = slice(at, at + step)
            before = Nearest(self.found.keys[part], self.found.ids[part])
            if by_codes:
                self._merge_coded(at, lists, form, queries, pairs, before)
                continue
            fresh = scan(lists, form, centroids, queries, pairs, self._k, self._threads)
            self.found.keys[part], self.found.ids[part] = united([before, fresh], self._k)

    def _merge_coded(
        self, at: int, lists: Lists, form: RowFormat, queries: NDArray[Any], pairs: Pairs, found: Nearest
    ) -> None:
        """Merge vectors into the nearest of the queries from number `at` on, in place.

        Codes of one block of queries are kept: where there are several, they are made again for each block of vectors.
        """
        columns: list[Any] = [np.require(column, requirements=["C", "W"]) for column in lists]  # see `scan`
        lists = Lists(*columns)
        with BlockPool(self._threads) as pool:
            if self._coded is None or self._coded[0] != at:
                self._coded = None  # not two at a time
                self._coded = at, code_queries(queries, pool)
            merge_coded(lists, form, self._coded[1], pairs, *found, pool, self._threads)


def exact_query_bytes(dim: int, k: int, threads: int) -> int:
    """Return the bytes of a query while it is compared: the query as float32, and the candidates of all threads.

    A query that is compared by codes takes less: itself as float32, its code, and no candidates.
    """
    return 8 * dim + (k + MARGIN) * (24 * threads + 56) + 64


def exact_neighbours(
    base: NDArray[Any], queries: NDArray[Any], k: int, threads: int = 1, skip: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """Return the k nearest rows of `base` to each query by squared Euclidean distance.

    Parameters
    ----------
    base : array, shape (n_vectors, dim)
    queries : array, shape (n_queries, dim)
    k : int
        At most n_vectors, or n_vectors - 1 with `skip`.
    skip : int64 array, shape (n_queries,), optional
        A row of `base` to leave out for each query (the query itself).

    Returns
    -------
    ids : uint32 array, shape (n_queries, k)
        Nearest first, ties by the smaller id.
    distances : float32 array, shape (n_queries, k)
        Computed in float64 or in integers from the vectors, not by a product.
    """
    search = ExactSearch(queries, k + (skip is not None), threads)
    step = max(1, BLOCK_BYTES // (base.shape[1] * base.dtype.itemsize))
    for first in range(0, len(base), step):
        search.add(first, np.asarray(base[first : first + step]))
    ids, keys = search.found.ids, search.found.keys
    if skip is not None:
        own = ids == skip[:, None]
        own[~own.any(axis=1), -1] = True  # many duplicates may push the query's own row beyond the end
        ids, keys = (column[~own].reshape(len(queries), k) for column in (ids, keys))
    return ids, keys.astype(np.float32)


def _as_lists(
    first: int, rows: NDArray[Any], size: int, with_means: bool
) -> tuple[Lists, NDArray[np.float32]]:
    """Return rows as lists of `size` rows, each with a centroid, near which products are precise."""
    n, row_bytes = len(rows), rows.shape[1] * rows.dtype.itemsize
    starts = np.arange(0, n, size)
    sizes = np.diff(np.append(starts, n))
    lists = Lists(
        np.ascontiguousarray(rows).view(np.uint8).reshape(-1),
        np.arange(len(starts), dtype=np.uint32),
        sizes,
        starts * row_bytes,
        np.arange(first, first + n, dtype=np.uint32),
    )
    if not with_means:  # unused with integers and codes
        return lists, np.zeros((len(starts), rows.shape[1]), np.float32)
    sums = np.add.reduceat(rows, starts, axis=0, dtype=np.float64)
    return lists, (sums / sizes[:, None]).astype(np.float32)
