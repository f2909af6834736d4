"""Graphs made by faiss."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np


def make_hnsw(rows: np.ndarray, m: int = 6, metric: int = faiss.METRIC_L2) -> Any:
    faiss.omp_set_num_threads(1)
    index = faiss.IndexHNSWFlat(rows.shape[1], m, metric)
    index.add(rows)
    return index


def make_nsg(rows: np.ndarray, r: int = 9) -> Any:
    faiss.omp_set_num_threads(1)
    index = faiss.IndexNSGFlat(rows.shape[1], r)
    index.build_type = 0  # neighbours by brute force
    index.add(rows)
    return index
