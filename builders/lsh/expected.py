"""Expected overall ratio of searches for the nearest vector, from distances of sampled queries; no table is filled.

A vector at distance d lies in the query's bucket of one table, or in one that is probed, with a probability that
follows from d / R. Tables are scanned one after the other until S vectors were met, so a search sees as many tables of
a radius as hold S candidates, which is told by the distances to all vectors. The search ends at the radius R within
c times which it met a vector. Deviations from what a search does: tables of one radius are independent, a vector that
was met at a radius is met at all larger ones, and counts of candidates are their means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lsh.probes import shared_bucket

#: Widths, in distances, at which the probability of a shared bucket is computed; between them it is interpolated.
_WIDTHS = np.geomspace(0.25, 64, 49)
#: Numbers of tables at which candidates are counted.
_TABLES = 13
#: A search is taken to have ended once this share of them has.
_ENDED = 1 - 1e-6


class Sampled(NamedTuple):
    """Distances of sampled queries, which are vectors themselves.

    Attributes
    ----------
    nearest : float64 array, shape (q, k)
        To their nearest others, ascending. Shape (0, k) where there is one vector.
    others : float64 array, shape (q, m)
        To some vectors at random.
    """

    nearest: NDArray[np.float64]
    others: NDArray[np.float64]


@dataclass(frozen=True)
class Tables:
    """Hash tables that are to be searched.

    Attributes
    ----------
    n_functions, n_tables, probes : int
        m, L, and further buckets of each table.
    width, ratio : float
        w and c.
    """

    n_functions: int
    n_tables: int
    probes: int
    width: float
    ratio: float


@dataclass(frozen=True)
class Expected:
    """Expected figures of a search for the nearest vector: its ratio, vectors measured, and radii searched."""

    ratio: float
    distances: float
    radii: float


class Expectation:
    """Expected searches of hash tables with given radii.

    Memory: 8 bytes a query, distance and radius that searches get to, and ten times that while one is looked at. Time:
    `_TABLES` passes over the distances for each such radius, and a few for each number of candidates.

    Parameters
    ----------
    tables : Tables
    radii : sequence of float
    sampled : Sampled
        Queries with a copy among the vectors do not count.
    n : int
        Vectors of the index.
    """

    def __init__(self, tables: Tables, radii: Sequence[float], sampled: Sampled, n: int) -> None:
        asked = sampled.nearest[:, 0] > 0
        near, others = sampled.nearest[asked], np.sort(sampled.others[asked], axis=1)
        far = others > near[:, -1:]
        share = max(0, n - 1 - near.shape[1]) / np.maximum(far.sum(axis=1, keepdims=True), 1)
        self._distances = np.hstack([near, np.where(far, others, near[:, -1:])])  # ascending
        self._stands_for = np.hstack([np.ones_like(near), np.where(far, share, 0.0)])
        self._tables, self._radii = tables, radii
        self._log_met = _log_met(tables.n_functions, tables.probes)
        self._numbers = np.append(0.0, np.unique(np.geomspace(1, tables.n_tables, _TABLES)))
        self._at: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []

    def __len__(self) -> int:
        """Return the number of queries that count."""
        return len(self._distances)

    def of(self, candidates: int) -> Expected:
        """Return what searches with S = `candidates` are expected to find and to cost, on average over the queries."""
        distances, stands_for = self._distances, self._stands_for
        ratios = distances / distances[:, :1]
        found = before = np.zeros_like(distances)
        met = np.zeros(len(distances))
        within = np.zeros(distances.shape, bool)
        ratio, measured, radii = np.zeros((3, len(distances)))
        going = np.ones(len(distances))
        for i, radius in enumerate(self._radii):
            missed, by_tables = self._radius(i)
            new = np.minimum(candidates, np.maximum(by_tables[:, -1] - met, 0))
            measured, radii = measured + going * new, radii + going
            met = met + new
            scanned = _crossed(by_tables, met, self._numbers)
            found = np.maximum(found, -np.expm1(scanned[:, None] * missed))
            now = -np.expm1(
                stands_for * np.log1p(-np.minimum(found, 1 - 1e-12))
            )  # any of those it stands for
            # The nearest that was met is this one, and at the radius before none was near enough.
            none_nearer = _products_before(1 - now)
            none_earlier = _products_before(np.where(within, 1 - before, 1.0)[:, ::-1])[:, ::-1]
            here = np.where(within, np.maximum(now - before, 0), now) * none_nearer * none_earlier
            is_last = i == len(self._radii) - 1
            within = distances <= self._tables.ratio * radius
            ratio += (np.where(within | is_last, here, 0.0) * ratios).sum(axis=1)
            if is_last:
                going = going - np.minimum(going, here.sum(axis=1))
                break
            before = now
            going = np.where(within, 1 - now, 1.0).prod(axis=1)
            if going.max() <= 1 - _ENDED:
                break
        ratio += going * self._tables.ratio  # nothing was met
        return Expected(float(ratio.mean()), float(measured.mean()), float(radii.mean()))

    def _radius(self, i: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what follows from radius i, whatever S: computed once, when a search first gets there.

        Returns
        -------
        missed : float64 array, shape (q, d)
            Logarithm of the probability that one table leads to none at each distance.
        met : float64 array, shape (q, s)
            Vectors met in each of `_numbers` of tables.
        """
        if i == len(self._at):
            width = np.clip(self._tables.width * self._radii[i] / self._distances, _WIDTHS[0], _WIDTHS[-1])
            missed = np.log1p(-np.exp(np.interp(np.log(width), np.log(_WIDTHS), self._log_met)))
            met = [(self._stands_for * -np.expm1(number * missed)).sum(axis=1) for number in self._numbers]
            self._at.append((missed, np.stack(met, axis=1)))
        return self._at[i]


@lru_cache(maxsize=4)
def _log_met(n_functions: int, probes: int) -> NDArray[np.float64]:
    """Return the logarithm of the probability that one table leads to a vector, for each of `_WIDTHS`."""
    met: NDArray[np.float64] = np.log([shared_bucket(n_functions, float(width), probes) for width in _WIDTHS])
    return met


def _crossed(
    met: NDArray[np.float64], wanted: NDArray[np.float64], numbers: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the tables in which each query meets `wanted`, (q,), of the `met`, (q, s), in `numbers` of them, (s,)."""
    return np.array([np.interp(one, line, numbers) for one, line in zip(wanted, met, strict=True)])


def _products_before(factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the product of all factors before each, along the rows."""
    products = np.ones_like(factors)
    np.cumprod(factors[:, :-1], axis=1, out=products[:, 1:])
    return products
