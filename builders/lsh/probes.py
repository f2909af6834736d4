"""Probability that a vector shares the query's bucket, or one of the neighbouring buckets that multi-probe visits.

Multi-probe (Lv et al., VLDB 2007, section 4.4) visits the buckets in the order of a score: the sum of the query's
squared distances from the borders that lead there. The probability that a vector at distance R lies in one of the first
T buckets has no closed form. It is counted over random queries, always the same ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from indexmill.formats.kernel import kernel

#: Random queries: the relative error of a probability is a few hundredths.
_DRAWN = 20_000
_SEED = 0x9808E


def collision_probability(width: float) -> float:
    """Return the probability that two vectors share a cell `width` times as wide as their distance (Datar, 3.2)."""
    tail = math.erfc(width / math.sqrt(2))
    return 1 - tail - math.sqrt(2 / math.pi) / width * -math.expm1(-width * width / 2)


def shared_bucket(n_functions: int, width: float, probes: int) -> float:
    """Return the probability that a vector at distance R lies in the query's bucket or the first `probes` others.

    Parameters
    ----------
    n_functions : int
        m, of one table.
    width : float
        w, in units of R.

    Returns
    -------
    float
        Strictly between 0 and 1.
    """
    alone = math.pow(collision_probability(width), n_functions)
    if not probes:
        return min(max(alone, 1e-300), 1 - 1e-12)
    rng = np.random.default_rng(_SEED)
    places = rng.random((_DRAWN, n_functions))
    cells = np.floor(places + rng.standard_normal(places.shape) / width)
    beside = np.flatnonzero((np.abs(cells) <= 1).all(axis=1) & (cells != 0).any(axis=1))
    near: int = probed(places[beside], cells[beside], probes)
    return min(max(alone + near / _DRAWN, 1e-300), 1 - 1e-12)


@kernel
def probed(places: Any, cells: Any, probes: int) -> int:  # pragma: no cover - compiled
    """Count the rows whose `cells`, -1, 0 or 1 each, are among the first `probes` changes to a query at `places`."""
    rows, functions = places.shape
    scores = np.empty(2 * functions)
    taken, sums = np.empty(2 * functions, np.int64), np.empty(2 * functions + 1)
    found = 0
    for row in range(rows):
        score = 0.0
        for j in range(functions):
            place = places[row, j]
            scores[2 * j], scores[2 * j + 1] = place * place, (1 - place) * (1 - place)
            if cells[row, j] != 0:
                score += scores[2 * j] if cells[row, j] < 0 else scores[2 * j + 1]
        order = np.argsort(scores)
        # Depth-first search for sets of changes with a lower score; a set grows by later changes of the order.
        before, depth, at = 0, 0, 0
        sums[0] = 0.0
        while before < probes:
            if at < 2 * functions and sums[depth] + scores[order[at]] < score:
                clash = False
                for other in range(depth):
                    clash |= order[taken[other]] // 2 == order[at] // 2
                if clash:
                    at += 1
                    continue
                taken[depth] = at
                sums[depth + 1] = sums[depth] + scores[order[at]]
                depth += 1
                before += 1
                at += 1
            elif depth == 0:
                break
            else:
                depth -= 1
                at = taken[depth] + 1
        if before < probes:
            found += 1
    return found
