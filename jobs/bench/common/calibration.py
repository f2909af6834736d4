"""Calibration: a fixed piece of work, timed before and after others, which tells how fast the machine was just then."""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from indexmill.jobs.bench.common.dataset import Dataset, read_bin
from indexmill.jobs.bench.common.parameters import ALPHA, BUILD_LIST_SIZE, MAX_DEGREE, SEED, THREADS

#: Vectors of a set that are inserted into a graph: random reads and arithmetic, as builders have them.
ROWS = 50_000
#: The first of several graphs may find the clock low.
_ROUNDS = 3
#: Those of the graph that loads the kernels.
_FEW = 500


def calibration(data: Dataset) -> float:
    """Build a graph of the first `ROWS` vectors in memory, `_ROUNDS` times; return the median of the seconds."""
    vectors = np.array(read_bin(data.base)[:ROWS])
    _insert(vectors[:_FEW])
    return round(median(_seconds(vectors) for _ in range(_ROUNDS)), 3)


def _seconds(vectors: np.ndarray) -> float:
    began = time.perf_counter()
    _insert(vectors)
    return time.perf_counter() - began


def _insert(vectors: np.ndarray) -> None:
    from indexmill.builders.vamana.build import build_vamana
    from indexmill.builders.vamana.graph import VamanaParameters

    parameters = VamanaParameters(max_degree=MAX_DEGREE, build_list_size=BUILD_LIST_SIZE, alpha=ALPHA)
    build_vamana(vectors, 0, parameters, seed=SEED, threads=THREADS)
