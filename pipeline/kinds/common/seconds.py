"""Timings that all kinds predict by: starting, writing to disk, k-means, comparing all rows, training PQ, finishing."""

from __future__ import annotations

import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.kmeans import PASSES, MovedCentroids, batch_size
from indexmill.builders.lists.exact import BLOCK_BYTES, exact_neighbours
from indexmill.pipeline.kinds.common.certify import QUERIES, K
from indexmill.pipeline.mill.clocks import Tries, fastest

#: Bytes written to learn the speed of the disk.
_WRITE_BYTES = 32 << 20
#: PQ training, in encodings of the training rows: k-means has the cost of 10.5 iterations, each a little more than one.
#: With a rotation, in rotations and encodings, its decompositions among them: 10 and 16 were measured with 768 and 256
#: components.
TRAINING_ROUNDS = 12
#: Seconds of a byte of a finished file: it is hashed twice, before and after it has its build id.
HASH_SECONDS = 1.2e-9
#: Centroids of the first try of k-means, and the most.
_FIRST_CENTROIDS, _MOST_CENTROIDS = 64, 1024
#: What a starting process mostly does, and its seconds on the machine on which the starts of kinds were measured.
_CLASSES = "\n".join(
    f"class C{i}:\n    def plus(self, x: int) -> int:\n        return x + {i}" for i in range(100)
)
CLASSES_SECONDS = 2.2e-3
#: Prefix of the names of trial files.
TRIAL_PREFIX = ".indexmill-trial-"


def starting_seconds(usual: float) -> float:
    """Return the seconds of the start of a process on this machine, which takes `usual` on the measured one."""
    seconds = fastest(lambda: exec(compile(_CLASSES, "<trial>", "exec"), {}), math.inf, times=5)
    return usual * seconds / CLASSES_SECONDS


def write_seconds(directory: Path) -> float:
    """Return the seconds of a byte that is written and synced."""
    block = np.random.default_rng(0).bytes(1 << 20)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=TRIAL_PREFIX) as file:
        start = time.perf_counter()
        for _ in range(_WRITE_BYTES >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return (time.perf_counter() - start) / _WRITE_BYTES


def exact_seconds(rows: NDArray[Any], deadline: float, n_queries: int = QUERIES) -> float:
    """Return the seconds of a row that is compared with queries, on one thread; by default those of a certificate.

    Parameters
    ----------
    rows : array, shape (n_rows, dim)
        Vectors as they are stored; some are the queries.
    """
    some = rows[: max(n_queries, BLOCK_BYTES // rows[0].nbytes)]
    queries, k = np.resize(some, (n_queries, rows.shape[1])), min(K, len(some))
    exact_neighbours(some[:64], queries, min(k, 64))  # compiles
    return fastest(lambda: exact_neighbours(some, queries, k), deadline) / len(some)


def kmeans_seconds(rows: NDArray[Any], sample: int, wanted: int, deadline: float) -> float:
    """Return the seconds of `wanted` centroids of a sample on one thread, by a batch with as many as time allows.

    Parameters
    ----------
    rows : array, shape (n_rows, dim)
        Some of the sample.
    sample : int
        Rows of the sample.
    """
    most = max(1, min(wanted, len(rows) // 4, _MOST_CENTROIDS))
    centroids = min(most, _FIRST_CENTROIDS)
    _row_seconds(rows[:256], 1)  # compiles
    tries = Tries(deadline)
    seconds = _row_seconds(rows, centroids)
    while centroids < most and tries.leave_time(growth=16):
        centroids = min(4 * centroids, most)
        seconds = _row_seconds(rows, centroids)
    return PASSES * sample * seconds * wanted / centroids


def _row_seconds(rows: NDArray[Any], centroids: int) -> float:
    """Return the seconds of a row in a batch."""
    batch = np.asarray(rows[: batch_size(centroids)], np.float32)
    moved = MovedCentroids(batch[:centroids].copy(), batch[:1])
    begun = time.perf_counter()
    moved.move(batch)
    return (time.perf_counter() - begun) / len(batch)
