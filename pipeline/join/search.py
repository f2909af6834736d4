"""The search of one batch for a block of queries, through the lists that they probe."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.cells import Cells
from indexmill.builders.lists.rows import Lists
from indexmill.builders.lists.scan import MARGIN, Nearest, compares_bytes, once, scan
from indexmill.builders.nearest.pairs import Pairs, pairs_of
from indexmill.formats.ivf.centroids import Centroids
from indexmill.pipeline.join.batches import row_format


class Search:
    """Settings of the comparison of queries with lists.

    Parameters
    ----------
    shared : Centroids
    k : int
    nprobe : int
        1 to the number of lists.
    threads : int
        Does not reach the result.
    by_distance : bool
        Rank by squared distance also under inner product.
    """

    def __init__(
        self, shared: Centroids, k: int, nprobe: int, threads: int, *, by_distance: bool = False
    ) -> None:
        self.k, self.nprobe, self.threads = k, nprobe, threads
        self._shared = shared
        self._by_product = shared.metric == "ip" and not by_distance
        self._form, self._rows = row_format(shared), rows_of(shared, k)
        self._cells: Cells | None = None

    @property
    def exhaustive(self) -> bool:
        """Whether every query probes every list, so that none need be chosen."""
        return self.nprobe == self._shared.n_lists

    def choose(self, queries: NDArray[Any]) -> NDArray[np.uint32]:
        """Return the lists that each query probes, nearest first: (n, nprobe)."""
        if self._cells is None:
            self._cells = Cells(self._shared.centroids, queries.dtype)
        return self._cells.nearest_few(queries, self.nprobe, self.threads)

    def run(self, lists: Lists, queries: NDArray[Any], chosen: NDArray[np.uint32] | None) -> Nearest:
        """Return the k nearest vectors of each query in the lists of a batch that it probes.

        Parameters
        ----------
        lists : Lists
        queries : array, shape (n, dim)
            Of `Queries.block`.
        chosen : uint32 array, shape (n, nprobe), or None
            None: all lists.
        """
        n, n_lists = len(queries), self._shared.n_lists
        if chosen is None:
            pairs = Pairs(np.tile(np.arange(n), n_lists), np.arange(n_lists + 1) * n)
        else:
            pairs = pairs_of(chosen, n_lists)
        nearest = scan(
            lists, self._form, self._shared.centroids, queries, pairs, self._rows, self.threads,
            by_product=self._by_product,
        )  # fmt: skip
        return nearest if self._shared.copies == 1 else once(nearest, self.k)


def rows_of(shared: Centroids, k: int) -> int:
    """Return the number of nearest rows that hold k different vectors, with as many to spare as `scan` has of rows."""
    spare = 0 if compares_bytes(row_format(shared)) else MARGIN * (shared.copies - 1)
    return k * shared.copies + spare


def scores_of(keys: NDArray[np.float64], metric: str) -> NDArray[np.float32]:
    """Return the user's scores of what results are ranked by (docs/formats/graph.md, "Metrics")."""
    scores = {"l2": keys, "cosine": 1 - keys / 2, "ip": -keys}[metric]
    return scores.astype(np.float32)
