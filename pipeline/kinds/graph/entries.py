"""Stage *entries*: centroids of the sample, and the vertex nearest to each (DiskANN++ section III)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from indexmill.builders.cluster.kmeans import fit_centroids
from indexmill.builders.gpu import open_gpu
from indexmill.builders.vamana.entries import entry_vertices, n_entries
from indexmill.pipeline.kinds.graph.tasks import load_graph

VERSION = 5


def entries_task(
    vectors: str, graph: str, sample: str, wanted: int, seed: int, compute: str, out: str, threads: int
) -> None:
    """Write ``centroids.npy`` and ``vertices.npy``."""
    rows = np.load(vectors, mmap_mode="r")
    drawn = np.load(Path(sample) / "sample.npy", mmap_mode="r")
    centroids = fit_centroids(drawn, n_entries(wanted, len(rows)), seed, threads, open_gpu(compute))
    np.save(Path(out) / "centroids.npy", centroids)
    np.save(Path(out) / "vertices.npy", entry_vertices(rows, load_graph(Path(graph)), centroids, threads))
