"""Stages *sample* and *cluster*: training rows, the medoid, and the plan of shards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.shards import ShardPlan, plan_shards
from indexmill.builders.vamana.entries import medoid
from indexmill.pipeline.kinds.common.ingest import read_summary

SAMPLE_VERSION = 1
CLUSTER_VERSION = 4


def sample_task(vectors: str, n_sample: int, seed: int, out: str, threads: int) -> None:
    """Write ``sample.npy``: `n_sample` rows drawn without replacement, in ascending row order."""
    rows = np.load(vectors, mmap_mode="r")
    np.save(Path(out) / "sample.npy", rows[sampled(len(rows), n_sample, seed)])


def sampled(n: int, n_sample: int, seed: int) -> NDArray[np.int64]:
    """Return the rows of a sample of `n` rows, ascending."""
    return np.sort(np.random.default_rng(seed).choice(n, min(n_sample, n), replace=False))


def cluster_task(
    ingest: str, sample: str, shard_vectors: int | None, overlap: float, seed: int, out: str, threads: int
) -> None:
    """Write ``cluster.json``, and ``shards.npz`` for a build in shards of at most `shard_vectors`.

    Raises
    ------
    BudgetError
        If there would be too many shards.
    """
    directory = Path(out)
    summary = read_summary(Path(ingest))
    if shard_vectors is not None:
        rows = np.load(Path(sample) / "sample.npy", mmap_mode="r")
        plan = plan_shards(rows, summary.n_vectors, shard_vectors, overlap, seed, threads)
        np.savez(directory / "shards.npz", **vars(plan))
    vectors = np.load(Path(ingest) / "vectors.npy", mmap_mode="r")
    found = {"medoid": medoid(vectors, np.array(summary.mean))}
    (directory / "cluster.json").write_text(json.dumps(found))


def load_plan(directory: Path) -> ShardPlan:
    """Read the plan that `cluster_task` wrote."""
    with np.load(directory / "shards.npz") as arrays:
        return ShardPlan(arrays["centroids"], arrays["weights"], float(arrays["border"]), arrays["parts"])


def load_medoid(directory: Path) -> int:
    """Read the medoid that `cluster_task` found."""
    return int(json.loads((directory / "cluster.json").read_text())["medoid"])
