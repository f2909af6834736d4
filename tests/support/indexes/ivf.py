"""Small sets of vectors, their IVF indexes, and results of joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.pipeline.build import run_build
from indexmill.pipeline.join.options import JoinOptions, JoinReport
from indexmill.pipeline.join.run import run_join
from indexmill.pipeline.spec import BuildSpec, IvfParameters

N, DIM, LISTS, BATCH = 3000, 12, 24, 1100


def make_vectors(dtype: str, n: int = N, seed: int = 3) -> NDArray[Any]:
    """Return clustered vectors, (n, DIM), of a type, with many equal distances where it is an integer type."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(30, DIM)) * 12
    rows = centres[rng.integers(30, size=n)] + rng.normal(size=(n, DIM)) * 4
    if dtype == "uint8":
        return np.clip(rows + 128, 0, 255).astype(np.uint8)
    return np.clip(rows, -128, 127).astype(dtype)


def build_lists(
    path: Path, vectors: NDArray[Any], *, workers: int = 1, centroids: str | None = None, **parameters: Any
) -> Path:
    """Build an IVF index of an array beside a .npy file of it."""
    source = path.with_suffix(".npy")
    np.save(source, vectors)
    wanted = IvfParameters(**{"lists": LISTS, "batch_vectors": BATCH, **parameters})
    run_build(
        BuildSpec(input=[str(source)], out=str(path), centroids=centroids, parameters=wanted, workers=workers)
    )
    return path


def join(
    index: Path, queries: NDArray[Any], out: Path, k: int = 10, nprobe: int | None = 4, **options: Any
) -> JoinReport:
    """Join and return the report."""
    return run_join(queries, index, out, JoinOptions(k, nprobe, **options))


def result(out: Path, n_queries: int, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return vector ids and scores of a result, (n_queries, k); -1 and NaN where there is none."""
    table = pq.read_table(out)
    ids, scores = np.full((n_queries, k), -1), np.full((n_queries, k), np.nan)
    at = table["query"].to_numpy(), table["rank"].to_numpy()
    ids[at], scores[at] = table["vector_id"].to_numpy(), table["score"].to_numpy()
    return ids, scores
