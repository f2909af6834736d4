"""indexmill as an algorithm of ann-benchmarks: copy this folder to ``ann_benchmarks/algorithms/indexmill`` there.

    python run.py --local --algorithm indexmill --dataset sift-128-euclidean
    python run.py --local --algorithm indexmill --dataset sift-128-euclidean --batch

The index lies in a temporary directory and is searched there, mapped into memory. ``--batch`` searches with as many
threads as there are processors, else there is one. The first build on a machine compiles kernels, and is the slowest.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from ann_benchmarks.algorithms.base.module import BaseANN
from numpy.typing import NDArray

import indexmill

_METRICS = {"euclidean": "l2", "angular": "cosine"}


class Indexmill(BaseANN):  # type: ignore[misc]
    """A graph index.

    Parameters
    ----------
    metric : {"euclidean", "angular"}
    parameters : dict
        Keywords of `indexmill.build`, such as ``max_degree``.
    """

    def __init__(self, metric: str, parameters: dict[str, Any]) -> None:
        if metric not in _METRICS:
            raise ValueError(f"metric {metric}: expected one of {', '.join(_METRICS)}")
        self._metric, self._parameters = _METRICS[metric], parameters
        self._directory = tempfile.TemporaryDirectory(prefix="indexmill-")
        self.set_query_arguments(64)

    def fit(self, X: NDArray[np.float32]) -> None:
        """Build the index of rows X (n, dim)."""
        path = os.path.join(self._directory.name, "index")
        indexmill.build(X, path, metric=self._metric, **self._parameters)
        self._index = indexmill.Index(path, engine="mmap")  # not direct reads: sets fit in memory here

    def set_query_arguments(self, L: int) -> None:
        """Keep `L` candidates in the searches that follow, k of them at least."""
        self._L = L
        self.name = f"indexmill({self._parameters}, L={L})"

    def query(self, q: NDArray[np.float32], n: int) -> NDArray[np.int64]:
        """Return the row numbers of the `n` nearest, nearest first."""
        return self._search(q, n, 1)[0]

    def batch_query(self, X: NDArray[np.float32], n: int) -> None:
        """Search for all rows of X at once; see `get_batch_results`."""
        self._found = self._search(X, n, len(os.sched_getaffinity(0)))

    def get_batch_results(self) -> list[NDArray[np.int64]]:
        """Return what `batch_query` found, for each row as `query` does."""
        return self._found

    def _search(self, queries: NDArray[np.float32], n: int, threads: int) -> list[NDArray[np.int64]]:
        found = self._index.search(queries, n, L=max(self._L, n), threads=threads)
        return [ids[ids >= 0] for ids in found.vector_ids]  # -1: a graph where fewer than n were reachable

    def get_memory_usage(self) -> float:
        """Return the kilobytes of the index's files: what this takes after `fit` is shown as the index's size."""
        files = Path(self._directory.name).rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file()) / 1024

    def done(self) -> None:
        """Remove the index."""
        self._directory.cleanup()
