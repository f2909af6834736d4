"""Block-aware pruning: new neighbour lists of a laid-out graph, for searches that read whole pages.

A search that reads the page of u gets the vectors and lists of all vertices on that page, and expands the nearest of
them. So an edge u -> v is hardly needed if a page mate w of u is nearer to v than u: a search for v expands w. Such a
candidate v is *covered*. The candidates of u are its neighbours and their neighbours. DiskANN's robust prune (Algorithm
2) chooses among those not covered, in rounds of growing slack. Free places are filled with the nearest remaining
candidates, first those not covered, then the covered ones.

Deviation from the robust prune: page mates occlude candidates without being chosen, and without slack. Searching a page
as a unit is the idea of Starling and PageANN; here every vertex keeps a list of its own, and files their format.

Every list is chosen from the old lists, so vertices are independent, and the result is the same for any number of
threads. Time for a vertex: R + R^2 distances to the candidates, `CANDIDATES` from each page mate, and those of the
prune. Memory: 4 bytes a vertex, and 16 bytes for each of R + R^2 candidates on each thread; lists and vectors may be
mapped files.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.order import Adjacency, Work, invert
from indexmill.reader.kernels import squared_distances
from indexmill.reader.threads import BlockPool

#: Nearest candidates that the prune chooses from.
CANDIDATES = 200
#: Growth of the slack between rounds, as in the graph's build.
_ALPHA_STEP = np.float32(1.2)
#: Vertices of a task.
_BLOCK = 256
_NOBODY = np.uint32(0xFFFFFFFF)
#: States of a candidate; a covered one is nearer to a page mate than to the vertex.
_OPEN, _CHOSEN, _COVERED = 0, 1, 2


def block_prune(
    graph: Adjacency,
    points: NDArray[Any],
    order: NDArray[np.uint32],
    nodes_per_page: int,
    alpha: float,
    into: Adjacency,
    *,
    threads: int = 1,
    work: Work | None = None,
    span: int = 16_384,
) -> int:
    """Choose new lists of `graph` for the pages of `order`; vertices that `work` does not reach keep their lists.

    Parameters
    ----------
    graph : Adjacency
    points : uint8 or float32 array, shape (n, dim)
    order : uint32 array, shape (n,)
        Vertex in each slot.
    alpha : float
        Slack of the prune, at least 1.
    into : Adjacency
        Arrays of the shape of `graph`, which receive the lists: ascending by (distance, id), padded with zeros.
    work : Work, optional
        A unit is an edge followed, or 16 components of a distance.
    span : int
        Vertices between two checks of the remaining work.

    Returns
    -------
    int
        Number of vertices with new lists: the first ones.
    """
    n, work, cost = len(order), work or Work(), -(-points.shape[1] // 16)
    slots = invert(order)
    into.neighbours[:] = graph.neighbours
    into.degrees[:] = graph.degrees
    with BlockPool(threads) as pool:
        for first in range(0, n, span):
            last = min(first + span, n)

            def choose(begin: int, end: int, first: int = first) -> int:
                return int(_choose_lists(
                    *graph, points, order, slots, nodes_per_page, np.float32(alpha), first + begin, first + end, *into
                ))  # fmt: skip

            distances = sum(pool.run(choose, last - first, _BLOCK))
            if not work.spend(distances * (1 + cost)):
                return last
    return n


@kernel
def _choose_lists(
    neighbours: Any, degrees: Any, points: Any, order: Any, slots: Any, b: int, alpha: Any, first: int, last: int,
    chosen: Any, counts: Any,
) -> Any:  # pragma: no cover - compiled  # fmt: skip
    """Write the lists of vertices `first` to `last`; return the number of distances."""
    width = neighbours.shape[1]
    most = width * (width + 1)
    size = 2
    while size < 2 * most:
        size *= 2
    table, ids, distances = np.empty(size, np.uint32), np.empty(most, np.uint32), np.empty(most, np.float32)
    state, far = np.empty(CANDIDATES, np.int8), np.empty(CANDIDATES, np.float32)
    spent: Any = 0
    for u in range(first, last):
        m = _gather(neighbours, degrees, u, table, ids)
        squared_distances(points, u, points, ids, m, distances)
        spent += m
        m = _nearest(ids, distances, m)
        state[:m] = _OPEN
        home = np.int64(slots[u]) // b
        for w in order[home * b : home * b + b]:
            if w != u:
                squared_distances(points, np.int64(w), points, ids, m, far)
                spent += m
                for i in range(m):
                    if ids[i] != w and far[i] < distances[i]:
                        state[i] = _COVERED
        count, measured = _prune(points, ids, distances, state, m, alpha, chosen[u])
        counts[u] = count
        spent += measured
    return spent


@kernel
def _gather(
    neighbours: Any, degrees: Any, u: int, table: Any, ids: Any
) -> Any:  # pragma: no cover - compiled
    """Write the distinct neighbours of `u` and their neighbours, without `u`; return their number."""
    table[:] = _NOBODY
    _is_new(table, np.uint32(u))
    m: Any = 0
    for j in range(degrees[u]):
        if _is_new(table, neighbours[u, j]):
            ids[m] = neighbours[u, j]
            m += 1
    for i in range(m):
        w = np.int64(ids[i])
        for j in range(degrees[w]):
            if _is_new(table, neighbours[w, j]):
                ids[m] = neighbours[w, j]
                m += 1
    return m


@kernel
def _is_new(table: Any, v: Any) -> Any:  # pragma: no cover - compiled
    """Insert `v` into a hash table, at most half full with a power of two places; return false if it was there."""
    mask = np.int64(table.size - 1)
    at = (np.int64(v) * 2654435761 >> 8) & mask
    while table[at] != _NOBODY:
        if table[at] == v:
            return False
        at = (at + 1) & mask
    table[at] = v
    return True


@kernel
def _nearest(ids: Any, distances: Any, m: int) -> Any:  # pragma: no cover - compiled
    """Sort the nearest `CANDIDATES` of `m` to the front by (distance, id); return their number."""
    kept: Any = min(m, CANDIDATES)
    rank = np.argsort(distances[:m])
    end = kept
    while end < m and distances[rank[end]] == distances[rank[kept - 1]]:
        end += 1
    some, theirs = ids[rank[:end]], distances[rank[:end]]
    for i in range(end):  # nearly sorted: only equal distances change places
        v, d, j = some[i], theirs[i], i
        while j > 0 and distances[j - 1] == d and ids[j - 1] > v:
            ids[j], distances[j] = ids[j - 1], distances[j - 1]
            j -= 1
        ids[j], distances[j] = v, d
    return kept


@kernel
def _prune(
    points: Any, ids: Any, distances: Any, state: Any, m: int, alpha: Any, chosen: Any
) -> Any:  # pragma: no cover - compiled
    """Write the chosen of `m` candidates, ascending, padded with zeros; return their number and that of distances."""
    occlusion, far = np.zeros(m, np.float32), np.empty(m, np.float32)
    at, some = np.empty(m, np.int64), np.empty(m, np.uint32)
    count, spent, slack = 0, 0, np.float32(1.0)
    while count < chosen.size:
        for i in range(m):
            if count == chosen.size:
                break
            if state[i] != _OPEN or occlusion[i] > slack:
                continue
            state[i] = _CHOSEN
            count += 1
            alive = 0
            for j in range(i + 1, m):
                if state[j] == _OPEN and occlusion[j] <= alpha:
                    at[alive], some[alive] = j, ids[j]
                    alive += 1
            squared_distances(points, np.int64(ids[i]), points, some, alive, far)
            spent += alive
            for a in range(alive):
                ratio = np.float32(np.inf) if far[a] == 0 else distances[at[a]] / far[a]
                occlusion[at[a]] = max(occlusion[at[a]], ratio)
        if slack >= alpha:
            break
        slack = min(slack * _ALPHA_STEP, alpha)
    for kind in (_OPEN, _COVERED):
        for i in range(m):
            if count < chosen.size and state[i] == kind:
                state[i] = _CHOSEN
                count += 1
    chosen[:] = 0
    n: Any = 0
    for i in range(m):
        if state[i] == _CHOSEN:
            chosen[n] = ids[i]
            n += 1
    return n, spent
