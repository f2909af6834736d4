"""Parameters of E2LSH that follow from a job (Nakanishi et al., EDBT 2023, sections 2.3 and 3.3; Datar et al., 2004).

Deviations: the first radius is not 1 but follows from nearest distances in the data, unless `choose` has given another,
and the last radius from an upper bound of all distances, which is at most the paper's 2 x_max sqrt(d).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lsh.probes import collision_probability, shared_bucket
from indexmill.formats.lsh.shape import MOST_FUNCTIONS, MOST_RADII

#: Share of the sampled nearest distances below the first radius.
FIRST_SHARE = 0.05
#: Share of a block that a bucket of average size fills, so that most chains of small radii are one block.
_FILL = 0.7


@dataclass(frozen=True)
class Asked:
    """Parameters that a job gives; None where `solve` is to choose.

    Attributes
    ----------
    ratio : float
        c, above 1.
    width : float
        w, in units of the radius.
    gamma : float
        Scales m, in ``m = gamma log_{1/p2} n``.
    success : float
        Probability that a vector within the radius shares a bucket with the query; it decides L. With gamma 1 and
        success 1 - 1/e this is the paper's Equation 5, L = n^rho.
    n_functions, n_tables, n_radii, candidates, hash_bits : int or None
    probes : int
        Further buckets of each table that a search visits.
    first_radius : float or None
    block_entries : int
        Entries of a block.
    """

    ratio: float
    width: float
    gamma: float
    success: float
    n_functions: int | None
    n_tables: int | None
    n_radii: int | None
    candidates: int | None
    hash_bits: int | None
    probes: int
    first_radius: float | None
    block_entries: int


@dataclass(frozen=True)
class Solved:
    """Parameters of one index.

    Attributes
    ----------
    n_functions, n_tables, candidates, hash_bits : int
        m, L, S, u.
    radii : tuple of float
    p1, p2, rho : float
        Collision probabilities of one function at R and cR, and log(1/p1) / log(1/p2).
    met, success : float
        Probability that a vector within the radius lies in a visited bucket: of one table, of any table.
    """

    n_functions: int
    n_tables: int
    candidates: int
    hash_bits: int
    radii: tuple[float, ...]
    p1: float
    p2: float
    rho: float
    met: float
    success: float


def solve(asked: Asked, n: int, extent: float, nearest: NDArray[np.float64]) -> Solved:
    """Return the parameters of an index over `n` vectors.

    Parameters
    ----------
    extent : float
        R_max, an upper bound of all distances (`extent_of`).
    nearest : float64 array
        Distances of sampled vectors to their nearest others; may be empty.

    Raises
    ------
    ValueError
        If parameters exceed the limits of the format, or radii exceed the extent of the data.
    """
    p1 = collision_probability(asked.width)
    p2 = collision_probability(asked.width / asked.ratio)
    rho = math.log(p1) / math.log(p2)
    m = asked.n_functions or max(1, round(asked.gamma * math.log(max(n, 2)) / -math.log(p2)))
    if m > MOST_FUNCTIONS:
        raise ValueError(
            f"n_functions: a width of {asked.width:g} takes {m}, at most {MOST_FUNCTIONS} fit; lower --width or --gamma"
        )
    met = shared_bucket(m, asked.width, asked.probes)
    n_tables = asked.n_tables or tables_for(met, asked.success)
    return Solved(
        n_functions=m,
        n_tables=n_tables,
        candidates=asked.candidates
        or _candidates(asked, n, n_tables * met / shared_bucket(m, asked.width, 0)),
        hash_bits=_hash_bits(asked, n),
        radii=tuple(_radii(asked, extent, nearest)),
        p1=p1,
        p2=p2,
        rho=rho,
        met=met,
        success=success_of(met, n_tables),
    )


def tables_for(met: float, success: float) -> int:
    """Return the number of tables that find a vector with probability `success`, one table with probability `met`."""
    return max(1, math.ceil(math.log1p(-success) / math.log1p(-met)))


def success_of(met: float, n_tables: int) -> float:
    """Return the probability that any of `n_tables` finds a vector, one table with probability `met`."""
    return -math.expm1(n_tables * math.log1p(-met))


def _candidates(asked: Asked, n: int, n_tables: float) -> int:
    """Return S = 2 L n^(2/3 (1 - gamma)), with L the tables that would find as many vectors without probes.

    If all far vectors lie at cR, a bucket holds n^(1 - gamma) times as many of them as intended. On SIFT, two thirds of
    the exponent bring the overall ratio near 1.05.
    """
    return math.ceil(2 * n_tables * math.pow(n, max(0.0, 2 / 3 * (1 - asked.gamma))))


def _hash_bits(asked: Asked, n: int) -> int:
    """Return u: so many buckets that blocks fill well and fingerprints are complete (docs/formats/lsh.md)."""
    if asked.hash_bits is not None:
        return asked.hash_bits
    load = n / (_FILL * asked.block_entries)
    fill = math.ceil(math.log2(load)) if load > 1 else 0
    return max(fill, (n - 1).bit_length() - 8, 0)


def first_radius(nearest: NDArray[np.float64]) -> float | None:
    """Return the radius that contains `FIRST_SHARE` of the nonzero nearest distances; None if all are zero."""
    nonzero = nearest[nearest > 0]
    return float(np.quantile(nonzero, FIRST_SHARE)) if len(nonzero) else None


def _radii(asked: Asked, extent: float, nearest: NDArray[np.float64]) -> Sequence[float]:
    first = asked.first_radius or first_radius(nearest)
    if first is None:  # all vectors are equal, or there is only one: any radius finds them
        first = extent if extent > 0 else 1.0
    most = radii_to(extent, first, asked.ratio)
    if asked.n_radii is not None and asked.n_radii > most:
        raise ValueError(
            f"n_radii: {asked.n_radii} radii from {first:.6g} on by {asked.ratio:g} go beyond {extent:.6g}, more than "
            f"any two vectors lie apart; give {most} or fewer"
        )
    n_radii = asked.n_radii or most
    if n_radii > MOST_RADII:  # a ratio near 1 makes more radii than memory holds
        raise ValueError(
            f"n_radii: 1..{MOST_RADII}, not {n_radii}; raise --ratio or --first-radius, or give --n-radii"
        )
    return [first * asked.ratio**i for i in range(n_radii)]


def radii_to(extent: float, first: float, ratio: float) -> int:
    """Return r = ceil(log_c(R_max / R_0)), at least 1."""
    if extent <= first:
        return 1
    return max(1, math.ceil(math.log(extent / first) / math.log(ratio) - 1e-9))


def extent_of(minimum: NDArray[np.float64], maximum: NDArray[np.float64], norm: float | None = None) -> float:
    """Return R_max of vectors in a box: its diagonal, at most 2 x_max sqrt(d), or ``2 * norm`` if that is less."""
    diagonal = float(np.linalg.norm(maximum - minimum))
    return diagonal if norm is None else min(diagonal, 2 * norm)
