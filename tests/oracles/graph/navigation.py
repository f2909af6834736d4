"""A slow, obvious search of a navigation graph, for comparison with the native reader.

* A vertex is scored by PQ distance in float32, chunks added in order, whenever an edge leads to it.
* Candidates are kept sorted by (distance, slot) and cut to `list_size` after each expansion.
* The first candidate that is not expanded is expanded next, until there is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.navigation import Navigation


def navigation_search(
    navigation: Navigation, codes: NDArray[np.uint8], table: NDArray[np.float32], list_size: int
) -> tuple[list[tuple[np.float32, int]], int]:
    """Search one query.

    Parameters
    ----------
    codes : uint8 array, shape (n_vertices, M)
        Of the index, in slot order.
    table : float32 array, shape (M, K)
        Squared distance of each chunk of the query to each centre.

    Returns
    -------
    candidates : list of (float32, int)
        Code distance and slot of what is left in the list, ascending.
    n_scored : int
        Code distances computed.
    """

    def distance(v: int) -> Any:
        total = np.float32(0)
        for j, code in enumerate(codes[navigation.slots[v]]):
            total += table[j, code]
        return total

    scored = {navigation.entry: distance(navigation.entry)}
    candidates, expanded, n_scored = [navigation.entry], set(), 1
    while waiting := [v for v in candidates if v not in expanded]:
        v = waiting[0]
        expanded.add(v)
        for u in navigation.neighbours[navigation.offsets[v] : navigation.offsets[v + 1]].tolist():
            n_scored += 1
            if u not in scored:
                scored[u] = distance(u)
                candidates.append(u)
        candidates = sorted(candidates, key=lambda u: (scored[u], u))[:list_size]
    return [(scored[v], int(navigation.slots[v])) for v in candidates], n_scored
