"""Robust prune (DiskANN Algorithm 2) as a numba kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from indexmill.reader.kernels import squared_distances

#: Growth of the slack between rounds, DiskANN's value: with alpha = 1.2 there are two rounds, 1.0 and 1.2.
_ALPHA_STEP = np.float32(1.2)
#: Occlusion of a candidate that was chosen.
_CHOSEN = np.float32(-1)


@njit(nogil=True, cache=True)
def sort_candidates(ids: Any, distances: Any, n: int) -> int:  # pragma: no cover - compiled
    """Sort the first `n` candidates by (distance, id) in place, drop repeated ids, return how many remain."""
    order = np.argsort(distances[:n])  # ties are put right below
    sorted_ids = ids[:n][order]
    sorted_distances = distances[:n][order]
    m = 0
    for i in range(n):
        v, d = sorted_ids[i], sorted_distances[i]
        j = m
        while j > 0 and distances[j - 1] == d and ids[j - 1] > v:
            j -= 1
        if j > 0 and distances[j - 1] == d and ids[j - 1] == v:
            continue
        for k in range(m, j, -1):
            ids[k] = ids[k - 1]
            distances[k] = distances[k - 1]
        ids[j] = v
        distances[j] = d
        m += 1
    return m


@njit(nogil=True, cache=True)
def prune_work(n: int) -> Any:  # pragma: no cover - compiled
    """Work space of `robust_prune` for at most `n` candidates."""
    return np.empty(n, np.float32), np.empty(n, np.uint32), np.empty(n, np.uint32), np.empty(n, np.float32)


@njit(nogil=True, cache=True)
def robust_prune(
    vectors: Any, ids: Any, distances: Any, n: int, max_degree: int, alpha: float, out: Any, work: Any
) -> int:  # pragma: no cover - compiled
    """Choose at most `max_degree` neighbours among candidates sorted by (distance, id).

    A candidate c is dropped when a chosen neighbour p satisfies ``alpha * d(p, c) <= d(v, c)``. As in
    DiskANN's published code, and unlike its paper, d is the squared distance, and the choice runs in rounds
    of growing slack (1, 1.2, ... alpha), so that long edges are chosen before the slack fills the list. Places
    still free go to the nearest of the dropped (DiskANN calls this saturation): a node block has R places on
    its page whether they are used or not.

    Parameters
    ----------
    vectors : uint8 or float32 array, shape (n_vectors, dim)
    ids, distances : uint32 and float32 arrays, shape (at least n,)
        Candidates and their squared distances to the vertex, which is not among them.
    out : uint32 array, shape (at least max_degree,)
        Chosen neighbours, in the order they were chosen.
    work : tuple of float32, uint32, uint32, float32 arrays, shape (at least n,) each

    Returns
    -------
    int
        Number of neighbours chosen.
    """
    occlusion, alive_at, alive_ids, alive_distances = work
    occlusion[:n] = 0
    chosen = 0
    slack = np.float32(1.0)
    limit = np.float32(alpha)
    while chosen < max_degree:
        for i in range(n):
            if chosen == max_degree:
                break
            if occlusion[i] > slack or occlusion[i] == _CHOSEN:
                continue
            occlusion[i] = _CHOSEN
            out[chosen] = ids[i]
            chosen += 1
            m = 0
            for j in range(i + 1, n):
                if _CHOSEN < occlusion[j] <= limit:
                    alive_at[m] = j
                    alive_ids[m] = ids[j]
                    m += 1
            squared_distances(vectors, np.int64(ids[i]), vectors, alive_ids, m, alive_distances)
            for a in range(m):
                j = alive_at[a]
                if alive_distances[a] == 0:
                    occlusion[j] = np.inf
                else:
                    occlusion[j] = max(occlusion[j], distances[j] / alive_distances[a])
        if slack >= limit:
            break
        slack = min(slack * _ALPHA_STEP, limit)
    for i in range(n):
        if chosen == max_degree:
            break
        if occlusion[i] != _CHOSEN:
            out[chosen] = ids[i]
            chosen += 1
    return chosen
