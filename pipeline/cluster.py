"""Stages *sample* and *cluster*: training rows, the medoid, and the centroids of shards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.entries import medoid
from indexmill.builders.kmeans import fit_centroids
from indexmill.builders.nearest import nearest_points
from indexmill.formats.errors import BudgetError
from indexmill.pipeline.ingest import read_summary

SAMPLE_VERSION = 1
CLUSTER_VERSION = 1
#: Shards each vector belongs to: two, so that shard graphs share vertices and their union hangs together.
FANOUT = 2
#: Clusters are uneven; when the largest shard would be too large, try again with this many times the shards.
_MORE_SHARDS = 1.3


def sample_task(vectors: str, n_sample: int, seed: int, out: str, threads: int) -> None:
    """Write ``sample.npy``: `n_sample` rows drawn without replacement, in ascending row order."""
    rows = np.load(vectors, mmap_mode="r")
    chosen = np.random.default_rng(seed).choice(len(rows), min(n_sample, len(rows)), replace=False)
    np.save(Path(out) / "sample.npy", rows[np.sort(chosen)])


def cluster_task(
    ingest: str, sample: str, shard_vectors: int | None, seed: int, out: str, threads: int
) -> None:
    """Write ``shards.npy`` (no rows for a build in one piece) and ``cluster.json``.

    Raises
    ------
    BudgetError
        If no number of shards brings the largest one down to `shard_vectors`.
    """
    directory = Path(out)
    rows = np.load(Path(sample) / "sample.npy")
    summary = read_summary(Path(ingest))
    n = summary.n_vectors
    shards = np.empty((0, rows.shape[1]), np.float32)
    if shard_vectors is not None and n > shard_vectors:
        shards = _shard_centroids(rows, n, shard_vectors, seed, threads)
    np.save(directory / "shards.npy", shards)
    vectors = np.load(Path(ingest) / "vectors.npy", mmap_mode="r")
    found = {"medoid": medoid(vectors, np.array(summary.mean)), "shards": len(shards)}
    (directory / "cluster.json").write_text(json.dumps(found))


def _shard_centroids(
    sample: NDArray[np.generic], n: int, shard_vectors: int, seed: int, threads: int
) -> NDArray[np.float32]:
    """Fit ever more centroids until the largest shard, judged by the sample, is small enough."""
    n_shards = max(2, -(-FANOUT * n // shard_vectors))
    while n_shards <= len(sample) // 4:
        centroids = fit_centroids(sample, n_shards, seed)
        if len(centroids) < FANOUT:
            break
        nearest = nearest_points(sample, centroids, FANOUT, threads)
        largest = np.bincount(nearest.ravel(), minlength=len(centroids)).max() * (n / len(sample))
        if largest <= shard_vectors:
            return centroids
        n_shards = int(n_shards * _MORE_SHARDS) + 1
    raise BudgetError(
        f"shard_vectors: {n:,} vectors do not fall into shards of at most {shard_vectors:,}; "
        "raise --memory or --shard-vectors (many equal vectors cannot be divided by clustering)"
    )
