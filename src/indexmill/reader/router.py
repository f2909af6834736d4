"""The router of a set: the part in which a query lies, and how far it lies beyond the border of each other part."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Router:
    """Centroids and weights of a set's parts, ready for queries.

    Parameters
    ----------
    centroids : float32 array, shape (n_parts, dim)
    weights : float32 array, shape (n_parts,)
    metric : str
        Under cosine, queries are scaled to unit length.
    """

    def __init__(self, centroids: NDArray[np.float32], weights: NDArray[np.float32], metric: str) -> None:
        self._sites, self._weights = centroids.astype(np.float64), weights.astype(np.float64)
        self._apart = squared_distances(centroids)
        self._scales = metric == "cosine"

    def beyond(self, queries: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the nearest part of each query, and how far the query lies beyond the border of every part.

        Parameters
        ----------
        queries : array, shape (n_queries, dim)

        Returns
        -------
        first : int64 array, shape (n_queries,)
            The part of least power distance.
        beyond : float64 array, shape (n_queries, n_parts)
            Distance to the plane between the nearest part and another, in units of the distance between their
            centroids; 0 for the nearest part. Infinite or NaN where two centroids are equal: there is no plane, and
            the query is endlessly far beyond it, or nowhere.
        """
        rows = queries.astype(np.float64)
        if self._scales:
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        distances = np.stack([np.square(rows - site).sum(axis=1) for site in self._sites], axis=1)
        distances += self._weights
        first = distances.argmin(axis=1)
        gaps = distances - np.take_along_axis(distances, first[:, None], 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond: NDArray[np.float64] = gaps / (self._apart[first] * 2)
        beyond[np.arange(len(rows)), first] = 0
        return first, beyond


def squared_distances(sites: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the squared distance of each two rows: float64, shape (n, n)."""
    centred = sites.astype(np.float64)
    centred -= centred.mean(axis=0)
    squares = np.square(centred).sum(axis=1)
    apart: NDArray[np.float64] = np.maximum(squares[:, None] + squares - 2 * (centred @ centred.T), 0)
    np.fill_diagonal(apart, 0)
    return apart
