"""Difficulty of searching a set of vectors: local intrinsic dimension and relative contrast, from exact neighbours.

    python -m indexmill.jobs.bench.common.difficulty BASE.u8bin [--queries QUERY.u8bin] [--sample 1000] [--threads 2]

Without queries, sampled rows of the base are asked for, each left out of its own neighbours.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.dataset import read_bin

#: Neighbours of the estimator of local intrinsic dimension: the number that Amsaleg et al. settle on.
NEIGHBOURS = 100
SAMPLE = 1000
#: Rows of the base that stand for all of them in a mean distance; it varies by under 1% between queries' samples.
_MEAN_ROWS = 20_000
SEED = 1


@dataclass(frozen=True)
class Difficulty:
    """Figures over the asked queries, all of Euclidean distance.

    Attributes
    ----------
    n_vectors, n_queries : int
    lid : float
        Mean local intrinsic dimension.
    lid_low, lid_high : float
        10th and 90th percentile over the queries.
    contrast : float
        Mean distance / mean distance of the nearest neighbour.
    contrast_low, contrast_high : float
        10th and 90th percentile over the queries of the mean distance / the query's own nearest distance.
    copies : float
        Share of queries whose nearest neighbour is equal to them.
    """

    n_vectors: int
    n_queries: int
    lid: float
    lid_low: float
    lid_high: float
    contrast: float
    contrast_low: float
    contrast_high: float
    copies: float


def measure(base: Any, queries: Any = None, sample: int = SAMPLE, threads: int = 2) -> Difficulty:
    """Estimate the difficulty of searching `base`.

    Parameters
    ----------
    base : array, shape (n_vectors, dim)
        May be a memory map; it is read in blocks.
    queries : array, shape (n_queries, dim), optional
        Held-out queries, of which the first `sample` are asked; by default rows of `base`, each without itself.
    sample : int
    threads : int

    Raises
    ------
    ValueError
        If `base` has fewer than `NEIGHBOURS` + 1 rows.
    """
    from indexmill.builders.lists.exact import exact_neighbours

    if len(base) <= NEIGHBOURS:
        raise ValueError(f"{len(base)} vectors: {NEIGHBOURS} neighbours of each query are needed; pass more")
    random = np.random.default_rng(SEED)
    own = None
    if queries is None:
        own = np.sort(random.choice(len(base), min(sample, len(base)), replace=False))
        queries = base[own]
    asked = np.asarray(queries[:sample])
    squares = exact_neighbours(base, asked, NEIGHBOURS, threads, skip=own)[1]
    distances = np.sqrt(squares.astype(np.float64))
    rows = np.sort(random.choice(len(base), min(_MEAN_ROWS, len(base)), replace=False))
    means = _mean_distances(np.asarray(base[rows]), asked)
    nearest = distances[:, 0]
    dimensions = local_dimensions(distances)
    contrasts = means[nearest > 0] / nearest[nearest > 0]
    lid_low, lid_high = np.percentile(dimensions, [10, 90])
    contrast_low, contrast_high = np.percentile(contrasts, [10, 90])
    return Difficulty(
        len(base), len(asked), float(dimensions.mean()), float(lid_low), float(lid_high),
        float(means.mean() / nearest.mean()), float(contrast_low), float(contrast_high), float((nearest == 0).mean()),
    )  # fmt: skip


def local_dimensions(distances: Any) -> Any:
    """Estimate the local intrinsic dimension of each query by maximum likelihood.

    Amsaleg et al., "Estimating Local Intrinsic Dimensionality", 2015, section 4.1 (the Hill estimator; Levina and
    Bickel, 2004, divide by k - 1): ``-1 / mean(log(d_i / d_k))``. Deviation: neighbours at distance 0, which have
    no logarithm, are left out of the mean.

    Parameters
    ----------
    distances : float array, shape (n_queries, k)
        Of the k nearest neighbours, ascending.

    Returns
    -------
    float64 array, shape (n_estimates,)
        Queries whose neighbours are all equally far have no estimate and are left out.
    """
    counted = distances > 0
    farthest = distances[:, -1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithms = np.where(counted, np.log(distances / farthest), 0)
    totals, counts = logarithms.sum(axis=1), counted.sum(axis=1)
    return counts[totals < 0] / -totals[totals < 0]


def two_nearest_dimension(distances: Any) -> float | None:
    """Estimate the intrinsic dimension of a set from the ratios of each query's two nearest distances.

    Facco et al., "Estimating the intrinsic dimension of datasets by a minimal neighborhood information", 2017.
    Deviation: maximum likelihood, ``1 / mean(log(d_2 / d_1))``, in place of a line through the sorted ratios.

    Parameters
    ----------
    distances : float array, shape (n_queries, at least 2)
        Of the nearest neighbours, ascending.

    Returns
    -------
    float or None
        None if no query has a nearest distance above 0 and a second one above that.
    """
    nearest, second = distances[:, 0], distances[:, 1]
    counted = nearest > 0
    total = float(np.log(second[counted] / nearest[counted]).sum())
    return float(counted.sum()) / total if total else None


def _mean_distances(rows: Any, queries: Any) -> Any:
    """Return the mean distance of each query to `rows`; float64, shape (n_queries,)."""
    rows, queries = rows.astype(np.float64), queries.astype(np.float64)
    norms, own = np.einsum("ij,ij->i", rows, rows), np.einsum("ij,ij->i", queries, queries)
    means = np.empty(len(queries))
    for first in range(0, len(queries), 100):
        part = slice(first, first + 100)
        squares = own[part, None] + norms - 2 * queries[part] @ rows.T
        means[part] = np.sqrt(np.maximum(squares, 0)).mean(axis=1)
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("--queries", type=Path)
    parser.add_argument(
        "--sample", type=int, default=SAMPLE, help="queries that are asked (default %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    queries = None if arguments.queries is None else read_bin(arguments.queries)
    found = measure(read_bin(arguments.base), queries, arguments.sample, arguments.threads)
    print(json.dumps(asdict(found), indent=1))


if __name__ == "__main__":
    main()
