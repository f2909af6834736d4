"""Filters that searches are measured with: a set of ids, and columns of labels of which each query asks for one.

A filter that allows one vector in `n`, for `n` of 100, 10 and 2, is one of

* ``ids``: vectors drawn at random, the same for all queries;
* ``drawn``: a column of `n` labels, drawn for each vector whatever it is; a query asks for a drawn label;
* ``near``: a column of `n` labels, each a cell of k-means; a query asks for the cell that it lies in itself;
* ``far``: the same column; a query asks for the cell that another one lies in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from indexmill.builders.cluster.kmeans import fit_centroids
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.nearest.products import nearest_points
from indexmill.jobs.bench.common.dataset import K
from indexmill.jobs.bench.common.parameters import SEED, THREADS

KINDS = ("ids", "drawn", "near", "far")
#: One vector in so many is allowed.
ONE_IN = (100, 10, 2)
#: Vectors that k-means is trained on.
SAMPLE = 100_000


@dataclass(frozen=True)
class Filters:
    """A filter for each query.

    Attributes
    ----------
    labels : int array, shape (n_vectors,)
    asked : int array, shape (n_queries,)
        Label of the vectors that a query allows.
    farthest : float array, shape (n_queries,)
        Squared distance of the K-th allowed neighbour; infinite if fewer are allowed.
    """

    labels: Any
    asked: Any
    farthest: Any

    @property
    def allowed(self) -> float:
        """Mean share of the vectors that a query allows."""
        counts = np.bincount(self.labels, minlength=int(self.asked.max()) + 1)
        return float(counts[self.asked].mean()) / len(self.labels)


def make_filters(kind: str, one_in: int, base: Any, queries: Any) -> Filters:
    """Make the filters of a kind, and find the neighbours that they allow; arrays of shape (n, dim)."""
    random = np.random.default_rng([SEED, one_in])
    n_vectors, n_queries = len(base), len(queries)
    if kind == "ids":
        labels = np.ones(n_vectors, np.int64)
        labels[random.choice(n_vectors, n_vectors // one_in, replace=False)] = 0
        asked = np.zeros(n_queries, np.int64)
    elif kind == "drawn":
        labels = random.integers(0, one_in, n_vectors)
        asked = random.integers(0, one_in, n_queries)
    else:
        sample = random.choice(n_vectors, min(SAMPLE, n_vectors), replace=False)
        centroids = fit_centroids(np.asarray(base[np.sort(sample)]), one_in, SEED)
        labels, asked = (
            nearest_points(rows, centroids, 1, THREADS)[:, 0].astype(np.int64) for rows in (base, queries)
        )
        if kind == "far":
            asked = random.permutation(asked)
    return Filters(labels, asked, farthest_neighbours(labels, asked, base, queries))


def farthest_neighbours(labels: Any, asked: Any, base: Any, queries: Any) -> Any:
    """Return the squared distance of each query's K-th neighbour with the label that it asks for."""
    found = np.full(len(queries), np.inf)
    for label in np.unique(asked):
        rows, mine = np.flatnonzero(labels == label), np.flatnonzero(asked == label)
        if len(rows) >= K:
            found[mine] = exact_neighbours(base[rows], queries[mine], K, THREADS)[1][:, -1]
    return found
