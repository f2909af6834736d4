"""The search of one batch for all queries of a join: queries by the lists they probe, in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cells import nearest_cells
from indexmill.builders.list_rows import Lists
from indexmill.builders.probe import Pairs, pairs_of
from indexmill.builders.scan import MARGIN, Nearest, compares_bytes, once, scan
from indexmill.formats.errors import InputError
from indexmill.formats.ivf_centroids import Centroids
from indexmill.pipeline.join_batches import row_format
from indexmill.pipeline.metric import unit
from indexmill.reader.queries import as_queries

#: Queries that are compared at a time, and pairs of them and lists: at most.
_MOST_QUERIES, _MOST_PAIRS, _LEAST_QUERIES = 65_536, 4 << 20, 256


class Search:
    """The queries of a join, and the lists that each of them probes.

    Parameters
    ----------
    shared : Centroids
    queries : array, shape (n_queries, user's dim)
    k : int
    nprobe : int
        1 to the number of lists.
    threads : int
        Does not reach the result.
    by_distance : bool
        Rank by squared distance also under inner product.

    Raises
    ------
    InputError
        If the queries do not suit the index.
    """

    def __init__(
        self,
        shared: Centroids,
        queries: NDArray[Any],
        k: int,
        nprobe: int,
        threads: int,
        *,
        by_distance: bool = False,
    ) -> None:
        self.queries = stored_queries(shared, queries)
        self._shared, self._k, self._nprobe, self._threads = shared, k, nprobe, threads
        self._by_product = shared.metric == "ip" and not by_distance
        self._form = row_format(shared)
        self._chosen: NDArray[np.uint32] | None = None
        if nprobe < shared.n_lists:
            self._chosen = nearest_cells(self.queries, shared.centroids, nprobe, threads)

    def run(self, lists: Lists) -> Nearest:
        """Return the k nearest vectors of each query in the lists of a batch that it probes."""
        step = block_queries(self._nprobe)
        parts, copies = [], self._shared.copies
        for first in range(0, len(self.queries), step):
            queries = self.queries[first : first + step]
            found = scan(
                lists, self._form, self._shared.centroids, queries, self._pairs(first, len(queries)),
                self._k * copies, self._threads, by_product=self._by_product,
            )  # fmt: skip
            parts.append(found if copies == 1 else once(found, self._k))
        return Nearest(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _pairs(self, first: int, n: int) -> Pairs:
        n_lists = self._shared.n_lists
        if self._chosen is None:
            return Pairs(np.tile(np.arange(n), n_lists), np.arange(n_lists + 1) * n)
        return pairs_of(self._chosen[first : first + n], n_lists)


def block_queries(nprobe: int) -> int:
    """Return how many queries are compared at a time."""
    return int(np.clip(_MOST_PAIRS // nprobe, _LEAST_QUERIES, _MOST_QUERIES))


def search_bytes(n_queries: int, dim: int, k: int, nprobe: int, threads: int) -> int:
    """Return what a search takes beside batches: queries twice, what they probe, candidates, results twice."""
    block = min(block_queries(nprobe), n_queries)
    fixed = n_queries * (8 * dim + 4 * nprobe + 36 * k)
    return fixed + block * nprobe * 24 + (threads + 2) * block * (k + MARGIN) * 24 + (threads << 21)


def query_dtype(shared: Centroids) -> np.dtype[Any]:
    """Return the type that queries must have."""
    return np.dtype(shared.dtype if compares_bytes(row_format(shared)) else np.float32)


def stored_queries(shared: Centroids, queries: NDArray[Any]) -> NDArray[Any]:
    """Return queries as vectors of the index are stored: in its type, of length 1 or with a component more.

    Raises
    ------
    InputError
        If they have another dimension, values that do not fit, or no direction under cosine.
    """
    dim = shared.dim - (shared.metric == "ip")
    if queries.ndim != 2 or queries.shape[1] != dim:
        got = queries.shape[-1] if queries.ndim else 0
        raise InputError(
            f"queries: {got} dimensions, but the index has {dim}; pass the queries that belong to it"
        )
    rows = as_queries(queries, query_dtype(shared), dim)
    if shared.metric == "cosine":
        zero = np.flatnonzero(~rows.any(axis=1))
        if len(zero):
            raise InputError(f"queries: row {zero[0]} is zero, which has no direction; leave it out")
        return unit(rows)
    if shared.metric == "ip":
        return np.column_stack([rows, np.zeros(len(rows), np.float32)])
    return rows


def scores_of(keys: NDArray[np.float64], metric: str) -> NDArray[np.float32]:
    """Return the user's scores of what results are ranked by (docs/formats/graph.md, "Metrics")."""
    scores = {"l2": keys, "cosine": 1 - keys / 2, "ip": -keys}[metric]
    return scores.astype(np.float32)
