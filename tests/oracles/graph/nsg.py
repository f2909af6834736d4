"""faiss's search of an NSG, one step at a time: it begins at the entry vertex's neighbours and at random ones."""

from __future__ import annotations

import bisect

import numpy as np


def nsg_search(
    vectors: np.ndarray,
    neighbours: np.ndarray,
    degrees: np.ndarray,
    entry: int,
    queries: np.ndarray,
    list_size: int,
    k: int,
) -> np.ndarray:
    """Return the k nearest vertices of each query, (q, k)."""
    n = len(vectors)
    starts = [int(u) for u in neighbours[entry, : degrees[entry]]][:list_size]
    twister = np.random.RandomState(0x1234)  # the generator and seed of every search
    while len(starts) < list_size:
        u = int(twister.randint(0, 2**32, dtype=np.uint32)) % n
        if u not in starts:
            starts.append(u)
    found = np.empty((len(queries), k), np.int64)
    for q, query in enumerate(queries):
        distance = ((vectors.astype(np.float64) - query) ** 2).sum(axis=1)
        pool = sorted((distance[u], u) for u in starts)
        seen, expanded = set(starts), set()
        while nearest := [(d, u) for d, u in pool if u not in expanded][:1]:
            v = nearest[0][1]
            expanded.add(v)
            for u in neighbours[v, : degrees[v]].tolist():
                if u not in seen:
                    seen.add(u)
                    bisect.insort(pool, (distance[u], u))
            pool = pool[:list_size]
        found[q] = [u for _, u in pool[:k]]
    return found
