"""Block-aware pruning from its definition: sets and loops over candidates."""

from __future__ import annotations

import numpy as np


def block_prune(
    lists: list[list[int]],
    points: np.ndarray,
    order: list[int],
    b: int,
    r: int,
    alpha: float,
    candidates: int,
) -> list[list[int]]:
    """The list of every vertex, nearest first."""
    wide = points.astype(np.float64)
    squares = ((wide[:, None] - wide) ** 2).sum(axis=2).astype(np.float32)
    page_of = {v: order[at : at + b] for at in range(0, len(order), b) for v in order[at : at + b]}
    return [
        _chosen(u, lists, squares, page_of[u], r, np.float32(alpha), candidates) for u in range(len(lists))
    ]


def _chosen(
    u: int, lists: list[list[int]], d: np.ndarray, page: list[int], r: int, alpha: np.float32, candidates: int
) -> list[int]:
    near = set(lists[u]) | {w for v in lists[u] for w in lists[v]}
    ranked = sorted(near - {u}, key=lambda v: (d[u, v], v))[:candidates]
    mates = [w for w in page if w != u]
    covered = {v for v in ranked if any(d[w, v] < d[u, v] for w in mates if w != v)}
    free = [v for v in ranked if v not in covered]
    kept: list[int] = []
    slack = np.float32(1)
    while True:
        for v in free:
            hidden = any(
                d[w, v] == 0 or d[u, v] / d[w, v] > slack for w in kept if (d[u, w], w) < (d[u, v], v)
            )
            if v not in kept and not hidden and len(kept) < r:
                kept.append(v)
        if slack >= alpha:
            break
        slack = min(slack * np.float32(1.2), alpha)
    rest = [v for v in free if v not in kept] + [v for v in ranked if v in covered]
    return sorted([*kept, *rest][:r], key=lambda v: (d[u, v], v))
