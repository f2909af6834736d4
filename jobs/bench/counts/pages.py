"""Part *pages*: balanced clusters of a page each, as BBANN has them, and how many of them hold a query's neighbours.

A query reads the pages of its nearest centroids. They are chosen exactly, so a graph of the centroids, which BBANN
searches, could not read fewer.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.counts.graphs import by_recall
from indexmill.jobs.bench.counts.sets import given
from indexmill.layout.kmeans_pages import balanced_cells
from indexmill.layout.order import Work

NAME = "text40k"


def measure(run: Run) -> dict[str, Any]:
    """Cluster a set into pages, and count the pages that hold a share of the neighbours."""
    case = given(run, NAME)
    base = np.asarray(read_bin(case.data.base))
    per_page = PAGE_BYTES // base[0].nbytes
    order, bounds = balanced_cells(base, per_page, 1, THREADS, Work())
    sizes = np.diff(bounds)
    centroids = np.add.reduceat(base[order], bounds[:-1], axis=0) / sizes[:, None]
    page_of = np.empty(len(base), np.int64)
    page_of[order] = np.repeat(np.arange(len(sizes)), sizes)
    ranks = page_ranks(centroids, case.queries, page_of[case.truth[0]])

    def pages(recall: float, k: int) -> int:
        return pages_at(ranks[:, :k], recall)

    return {
        "n_vectors": len(base),
        "queries": len(case.queries),
        "vectors_per_page": per_page,
        "pages": len(sizes),
        "to_vectors": centroids.astype(np.float32).nbytes / base.nbytes,
        "at": by_recall(pages),
    }


def page_ranks(centroids: Any, queries: Any, near: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many centroids are nearer to a query than that of each of its pages `near`.

    Parameters
    ----------
    centroids, queries : float arrays, shape (n_pages, dim) and (n_queries, dim)
    near : int64 array, shape (n_queries, k)
        Numbers of pages.

    Returns
    -------
    int64 array, shape (n_queries, k)
    """
    distances = (centroids**2).sum(axis=1) - 2 * queries @ centroids.T
    order = np.argsort(distances, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(len(centroids))[None, :], axis=1)
    return np.take_along_axis(ranks, near, axis=1)


def pages_at(ranks: NDArray[np.int64], recall: float) -> int:
    """Return the fewest pages a query with which this share of the neighbours of all queries is read."""
    ordered = np.sort(ranks, axis=None)
    return int(ordered[math.ceil(recall * len(ordered)) - 1]) + 1
