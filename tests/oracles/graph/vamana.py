"""Robust prune and greedy search as loops over Python lists, in float64."""

from __future__ import annotations

import numpy as np


def squared(vectors: np.ndarray, a: int, b: int) -> float:
    difference = vectors[a].astype(np.float64) - vectors[b].astype(np.float64)
    return float(difference @ difference)


def robust_prune(
    vectors: np.ndarray, v: int, candidates: list[int], max_degree: int, alpha: float, saturate: bool = True
) -> list[int]:
    """Rounds of growing slack, then perhaps the nearest of the dropped; see builders/vamana/prune.py."""
    pool = sorted(set(candidates) - {v}, key=lambda c: (squared(vectors, v, c), c))
    chosen: list[int] = []
    slack = 1.0
    while True:
        for c in pool:
            if (
                len(chosen) < max_degree
                and c not in chosen
                and not _occluded(vectors, v, c, chosen, pool, slack)
            ):
                chosen.append(c)
        if slack >= alpha:
            break
        slack = min(slack * 1.2, alpha)
    if not saturate:
        return chosen
    return (chosen + [c for c in pool if c not in chosen])[:max_degree]


def _occluded(vectors: np.ndarray, v: int, c: int, chosen: list[int], pool: list[int], slack: float) -> bool:
    for p in chosen:
        if pool.index(p) < pool.index(c):  # only a nearer neighbour hides a farther one
            between = squared(vectors, p, c)
            if between == 0 or squared(vectors, v, c) / between > slack:
                return True
    return False


def reachable(neighbours: np.ndarray, degrees: np.ndarray, start: int) -> set[int]:
    """Vertices that can be reached from `start`."""
    found, todo = {start}, [start]
    while todo:
        v = todo.pop()
        for u in neighbours[v, : degrees[v]].tolist():
            if u not in found:
                found.add(u)
                todo.append(u)
    return found
