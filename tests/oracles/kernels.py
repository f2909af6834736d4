"""Distances, products and look-ups as plain sums: integers without bounds, floats in float64."""

from __future__ import annotations

import numpy as np


def distances(query: np.ndarray, rows: np.ndarray, metric: str) -> np.ndarray:
    """Squared distances or inner products of a query (dim,) and rows (m, dim), int64 or float64."""
    wide = np.int64 if rows.dtype.kind in "iu" else np.float64
    x, y = query.astype(wide), rows.astype(wide)
    return ((x - y) ** 2 if metric == "l2" else x * y).sum(axis=1)


def sizes(query: np.ndarray, rows: np.ndarray, metric: str) -> np.ndarray:
    """Sums of the absolute terms, to which the error of a sum of floats is relative."""
    x, y = query.astype(np.float64), rows.astype(np.float64)
    return np.abs((x - y) ** 2 if metric == "l2" else x * y).sum(axis=1)


def code_distances(table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Sums of one entry a chunk, in float32 and in order."""
    total = np.zeros(len(codes), np.float32)
    for j in range(codes.shape[1]):
        total = total + table[j, codes[:, j]]
    return total
