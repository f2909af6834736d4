"""Small graphs for the tests of layouts."""

from __future__ import annotations

import numpy as np


def random_graph(n: int, r: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    neighbours = np.zeros((n, r), np.uint32)
    degrees = np.zeros(n, np.int32)
    for v in range(n):
        others = rng.permutation(np.delete(np.arange(n), v))[: rng.integers(0, r + 1)]
        neighbours[v, : len(others)] = others
        degrees[v] = len(others)
    return neighbours, degrees


def as_lists(neighbours: np.ndarray, degrees: np.ndarray) -> list[list[int]]:
    return [row[:d].tolist() for row, d in zip(neighbours, degrees, strict=True)]
