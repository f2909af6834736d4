"""The first radius and the candidates of an index by the overall ratio that its searches are expected to have.

A quantile of nearest distances as first radius, and S by a formula that was fitted to SIFT, reach an overall ratio near
1.05 on such vectors. Where nearest distances are alike, most searches end at the first radius, whose tables miss more
vectors than they are solved for, since most nearest vectors lie beyond it. A larger first radius finds them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from indexmill.builders.lsh.expected import Expectation, Expected, Sampled, Tables
from indexmill.builders.lsh.solve import FIRST_SHARE, Asked, solve

#: The overall ratio that the paper compares at; k = 1.
TARGET = 1.05
#: Vectors of an index whose searches are worth the estimate.
LEAST_VECTORS = 10_000
#: Shares of the sampled nearest distances below the first radius, and candidates over those of the formula.
SHARES = (FIRST_SHARE, 0.1, 0.25, 0.5, 0.75, 0.9)
FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
#: Most candidates: the vectors over this.
_MOST_SHARE = 8
#: Vectors that are measured in about the time of a read; reads of a table at a radius.
_DISTANCES_A_READ, _READS = 50, 2


def choose(asked: Asked, n: int, extent: float, sampled: Sampled) -> Asked:
    """Return `asked` with a first radius and candidates, if those by default are expected to miss `TARGET`.

    Those with the least work that reach it, or those with the least ratio if none does. What is given stays, and so do
    both where radii or candidates are given, or there are fewer than `LEAST_VECTORS`.

    Raises
    ------
    ValueError
        As `solve`.
    """
    found = solve(asked, n, extent, sampled.nearest[:, 0])
    given = (asked.first_radius, asked.n_radii, asked.candidates)
    if n < LEAST_VECTORS or any(value is not None for value in given):
        return asked
    tables = Tables(found.n_functions, found.n_tables, asked.probes, asked.width, asked.ratio)
    by_default = Expectation(tables, found.radii, sampled, n)
    if not len(by_default) or by_default.of(found.candidates).ratio <= TARGET:
        return asked
    nearest = sampled.nearest[:, 0]
    tried: list[tuple[bool, float, Asked]] = []
    for share in SHARES:
        first = float(np.quantile(nearest[nearest > 0], share))
        radii = solve(replace(asked, first_radius=first), n, extent, nearest).radii
        candidates, expected = _least(Expectation(tables, radii, sampled, n), found.candidates, n)
        misses = expected.ratio > TARGET
        what = replace(asked, first_radius=first, candidates=candidates)
        tried.append((misses, expected.ratio if misses else _work(expected, tables), what))
    return min(tried, key=lambda one: one[:2])[2]


def _least(expectation: Expectation, formula: int, n: int) -> tuple[int, Expected]:
    """Return the least of `FACTORS` times the candidates of the `formula` that reach `TARGET`, else the most."""
    numbers = [min(math.ceil(factor * formula), max(formula, n // _MOST_SHARE)) for factor in FACTORS]
    most = expectation.of(numbers[-1])
    if most.ratio <= TARGET:
        for number in numbers:
            expected = expectation.of(number)
            if expected.ratio <= TARGET:
                return number, expected
    return numbers[-1], most


def _work(expected: Expected, tables: Tables) -> float:
    """Return the vectors that a query measures, with its reads as vectors."""
    reads = _READS * expected.radii * tables.n_tables * (1 + tables.probes)
    return expected.distances + _DISTANCES_A_READ * reads
