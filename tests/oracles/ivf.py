"""Inverted lists by brute force: every vector's cell, and the search of every query in the cells it probes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NOTHING = 0xFFFFFFFF


def squares(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Squared distances of all pairs, (len(a), len(b)), in float64."""
    out: NDArray[np.float64] = ((a[:, None].astype(np.float64) - b[None].astype(np.float64)) ** 2).sum(axis=2)
    return out


def nearest_cells(vectors: NDArray[Any], centroids: NDArray[Any], nprobe: int) -> NDArray[np.int64]:
    """The nearest centroids of each vector, (m, nprobe), ties by number."""
    return np.argsort(squares(vectors, centroids), axis=1, kind="stable")[:, :nprobe]


def search(
    vectors: NDArray[Any], queries: NDArray[Any], centroids: NDArray[Any], nprobe: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids and squared distances, (n_queries, k), by (distance, id); `NOTHING` and infinity where there is none."""
    cells = nearest_cells(vectors, centroids, 1)[:, 0]
    distances = squares(queries, vectors)
    for i, probed in enumerate(nearest_cells(queries, centroids, nprobe)):
        distances[i, ~np.isin(cells, probed)] = np.inf
    distances = np.pad(distances, ((0, 0), (0, k)), constant_values=np.inf)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    found = np.take_along_axis(distances, order, 1)
    return np.where(np.isinf(found), NOTHING, order), found
