"""The reader's search `pipeline` where all distances are known beforehand, for formats that no index has.

What orders candidates, what a read brings, and by what its vertices are measured are arrays. Rules and numbers are
those of reader/core/src/graph/pipeline.rs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.order import Adjacency

#: Reads in flight, at first and at most; how much they grow; vertices at hand that are expanded for each read.
FIRST_WIDTH, MOST_WIDTH, WIDEN, EXPANSIONS = 2, 8, 2, 3


class Layout(NamedTuple):
    """Vertices that a read brings: `order` names those of the first read first, `per_read` at a time."""

    order: NDArray[np.uint32]
    per_read: int


class Known(NamedTuple):
    """Distances of queries to all vertices, both float32 (n_queries, n).

    Attributes
    ----------
    near
        By codes in memory.
    measured
        By what a node holds.
    """

    near: NDArray[np.float32]
    measured: NDArray[np.float32]


class Simulated(NamedTuple):
    """What searches found, int64 (n_queries, k) with -1 for nothing, and what they counted, by name."""

    vector_ids: NDArray[np.int64]
    counters: dict[str, NDArray[np.int64]]


def simulate(
    graph: Adjacency, layout: Layout, known: Known, starts: NDArray[np.uint32], size: int, k: int
) -> Simulated:
    """Search each query with a list of `size` from its own `starts`, vertices of shape (n_queries, any)."""
    places = np.empty_like(layout.order)
    places[layout.order] = np.arange(len(places), dtype=places.dtype)
    found = np.full((len(starts), k), -1, np.int64)
    reads = np.empty(len(starts), np.int64)
    _simulate(*graph, layout.order, places, layout.per_read, *known, starts, size, found, reads)
    return Simulated(found, {"pages_read": reads, "hops": np.zeros_like(reads)})


@kernel
def _simulate(
    neighbours: Any, degrees: Any, order: Any, places: Any, per_read: Any, near: Any, measured: Any, starts: Any,
    size: Any, found: Any, reads: Any,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    n = len(order)
    keys, names, chosen = np.empty(size, np.float32), np.empty(size, np.uint32), np.empty(size, np.bool_)
    waiting, flights = np.empty(MOST_WIDTH * per_read, np.uint32), np.empty(MOST_WIDTH, np.int64)
    for q in range(len(starts)):
        seen, expanded = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        # 0: not read, 1: in flight, 2: at hand
        states, at_hand = np.zeros(n // per_read + 1, np.uint8), np.empty(n, np.uint32)
        count = n_waiting = n_flights = n_hand = n_reads = 0
        width = FIRST_WIDTH
        for v in starts[q]:
            count = _offered(keys, names, chosen, count, near[q], seen, v)
        while True:
            while n_flights < width:
                at = _settled(chosen, count)
                if at == count:
                    break
                v, chosen[at] = names[at], True
                block = places[v] // per_read
                if expanded[v]:
                    continue
                if states[block] == 2:
                    count = _expand(
                        keys, names, chosen, count, near[q], seen, expanded, neighbours, degrees, v
                    )
                    continue
                waiting[n_waiting] = v
                n_waiting += 1
                if states[block] == 0:
                    states[block], flights[n_flights] = 1, block
                    n_flights += 1
                    n_reads += 1
            if n_flights == 0:
                break
            block = flights[0]
            flights[: n_flights - 1] = flights[1:n_flights].copy()
            n_flights -= 1
            states[block] = 2
            for slot in range(block * per_read, min(n, (block + 1) * per_read)):
                at_hand[n_hand] = order[slot]
                n_hand += 1
            settled, n_others = _settled(chosen, count), 0
            for i in range(n_waiting):
                v = waiting[i]
                if places[v] // per_read != block:
                    waiting[n_others] = v
                    n_others += 1
                elif not expanded[v]:
                    count = _expand(
                        keys, names, chosen, count, near[q], seen, expanded, neighbours, degrees, v
                    )
            n_waiting = n_others
            for _ in range(EXPANSIONS):
                best: Any = -1
                for i in range(n_hand):
                    v = at_hand[i]
                    if not expanded[v] and (best < 0 or measured[q, v] < measured[q, best]):
                        best = np.int64(v)
                if best >= 0:
                    count = _expand(
                        keys, names, chosen, count, near[q], seen, expanded, neighbours, degrees, best
                    )
            came_nearer = _settled(chosen, count) < settled
            width = max(width - 1, FIRST_WIDTH) if came_nearer else min(width + WIDEN, MOST_WIDTH)
        nearest = np.argsort(measured[q][at_hand[:n_hand]])[: found.shape[1]]
        for i in range(len(nearest)):
            found[q, i] = at_hand[nearest[i]]
        reads[q] = n_reads


@kernel
def _settled(chosen: Any, count: Any) -> Any:  # pragma: no cover - compiled
    """Return how many of the nearest candidates are chosen without a gap."""
    at = 0
    while at < count and chosen[at]:
        at += 1
    return at


@kernel
def _offered(
    keys: Any, names: Any, chosen: Any, count: Any, near: Any, seen: Any, v: Any
) -> Any:  # pragma: no cover - compiled
    """Make a vertex a candidate if it is new and near enough; return the number of candidates."""
    if seen[v]:
        return count
    seen[v] = True
    at, key = min(count, len(keys) - 1), near[v]
    if count == len(keys) and not key < keys[at]:
        return count
    while at > 0 and key < keys[at - 1]:
        keys[at], names[at], chosen[at] = keys[at - 1], names[at - 1], chosen[at - 1]
        at -= 1
    keys[at], names[at], chosen[at] = key, v, False
    return min(count + 1, len(keys))


@kernel
def _expand(
    keys: Any, names: Any, chosen: Any, count: Any, near: Any, seen: Any, expanded: Any, neighbours: Any, degrees: Any,
    v: Any,
) -> Any:  # fmt: skip  # pragma: no cover - compiled
    """Offer the neighbours of a vertex; return the number of candidates."""
    expanded[v] = True
    for j in range(degrees[v]):
        count = _offered(keys, names, chosen, count, near, seen, neighbours[v, j])
    return count
