"""The search of DiskANN's Rust client, one vertex at a time.

It keeps one candidate more than asked for, by codes, and ranks the best L of those that are left by exact distance;
DiskANN in C++ ranks every vertex it has read.
"""

from __future__ import annotations

import bisect
from itertools import pairwise

import numpy as np
from tests.oracles.files.small_index import SmallIndex


def rust_search(
    small: SmallIndex, queries: np.ndarray, list_size: int, k: int
) -> tuple[np.ndarray, float, float]:
    """Return the k nearest slots of each query, (q, k), and mean vertices read and codes compared per query."""
    offsets = small.codebook.offsets.astype(int)
    chunks = enumerate(pairwise(offsets))
    decoded = np.concatenate([small.codebook.pivots[small.codes[:, j], a:b] for j, (a, b) in chunks], axis=1)
    exact = small.stored.astype(np.float64)
    found, read, compared = [], 0, 0
    for query in queries.astype(np.float64):
        by_code = ((decoded - query) ** 2).sum(axis=1)
        pool, seen, expanded = (
            [(by_code[small.entries.medoid], small.entries.medoid)],
            {small.entries.medoid},
            set(),
        )
        while nearest := [u for _, u in pool if u not in expanded][:1]:
            expanded.add(nearest[0])
            for u in small.neighbours[nearest[0], : small.degrees[nearest[0]]].tolist():
                if u not in seen:
                    seen.add(u)
                    bisect.insort(pool, (by_code[u], u))
            pool = pool[: list_size + 1]
        left = [u for _, u in pool[:list_size]]
        distance = ((exact[left] - query) ** 2).sum(axis=1)
        found.append([left[i] for i in np.argsort(distance, kind="stable")[:k]])
        read, compared = read + len(expanded), compared + len(seen)
    return np.array(found), read / len(queries), compared / len(queries)
