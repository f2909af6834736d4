"""An index large enough for recall to mean something."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.support.indexes.built import Built

import indexmill
from indexmill.reader.index import SearchResult


@dataclass(frozen=True)
class Clustered:
    """An index of 5,000 vectors in 50 clusters, by l2, with queries from the same clusters.

    Attributes
    ----------
    vectors : float32 array, shape (5000, 24)
    queries : float32 array, shape (1200, 24)
    distances : float32 array, shape (1200, 5000)
        Squared distance of each query to each vector.
    """

    path: Path
    vectors: NDArray[np.float32]
    queries: NDArray[np.float32]
    distances: NDArray[np.float32]

    def recall(self, found: SearchResult, allowed: NDArray[np.bool_] | None = None) -> float:
        """Share of the true neighbours, of those allowed, that were found."""
        n_queries, k = found.vector_ids.shape
        distances = self.distances[:n_queries]
        if allowed is not None:
            distances = np.where(allowed, distances, np.inf)
        truth = np.argpartition(distances, k, axis=1)[:, :k]
        right = [len(set(a) & set(b)) for a, b in zip(found.vector_ids.tolist(), truth.tolist(), strict=True)]
        return sum(right) / (n_queries * k)


def build_clustered(out: Path, vectors: NDArray[np.float32], order: str) -> None:
    """Build the index in an order of the pages."""
    indexmill.build(vectors, out, R=16, L=40, pq_bytes=12, workers=1, order=order)


def make_clustered(built: Built) -> Clustered:
    """Build the index, or take the one that is there."""
    rng = np.random.default_rng(11)
    centres = 2 * rng.normal(size=(50, 24))

    def sample(n: int) -> Any:
        return (centres[rng.integers(50, size=n)] + rng.normal(size=(n, 24))).astype(np.float32)

    vectors, queries = sample(5000), sample(1200)
    path = built(build_clustered, vectors, order="star")
    products = queries @ vectors.T
    distances = (queries**2).sum(1)[:, None] - 2 * products + (vectors**2).sum(1)
    return Clustered(path, vectors, queries, distances)
