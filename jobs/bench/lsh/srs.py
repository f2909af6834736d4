"""SRS (Sun et al., PVLDB 8(1), 2014): nearest neighbours in a random projection to a few dimensions, one by one.

A query takes points in the order of their projected distance and measures them, until T' were measured, or
until the k-th nearest so far is good enough: ``Psi_m(c^2 projected^2 / kth^2) >= p_tau``, Psi_m the chi-square
distribution of m degrees of freedom. The paper's R-tree is a k-d tree here, in memory, and vectors lie in the
order of its leaves, so that points near in projection are near in memory; both make it faster.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from indexmill.formats.kernel import kernel
from indexmill.jobs.bench.lsh import tree
from indexmill.jobs.bench.lsh.nearest import insert, squared_distance

#: m: dimensions of the projection; what the paper on E2LSH on storage found best for all its sets.
DIMENSIONS = 8
#: The paper's approximation ratio, and success probability.
RATIO, SUCCESS = 4.0, 0.5 - 1 / math.e


class Found(NamedTuple):
    """Rows, int64 (n_queries, k), nearest first, -1 where there are none; and points measured, int64 (n_queries,)."""

    rows: Any
    measured: Any


class Srs:
    """An index of `vectors`, uint8 or float32 (n, dim), in memory.

    Memory: n (dim x element size + 4 m + 4) bytes and 2 x 4 m bytes a node of the tree, n / 16 or fewer. Time to
    build: O(n dim m + n log^2 n).
    """

    def __init__(self, vectors: Any, seed: int = 1, dimensions: int = DIMENSIONS) -> None:
        random = np.random.default_rng(seed)
        self.directions = random.standard_normal((vectors.shape[1], dimensions)).astype(np.float32)
        self.tree = tree.build(_project(vectors, self.directions))
        self.vectors = np.ascontiguousarray(vectors[self.tree.rows])
        self._fronts: list[tree.Front] = []

    @property
    def bytes_held(self) -> int:
        """Bytes of the index beside the vectors."""
        return sum(int(part.nbytes) for part in self.tree) + int(self.directions.nbytes)

    def search(self, queries: Any, k: int, most: int, ratio: float | None = None, threads: int = 1) -> Found:
        """Find k neighbours of each query, shape (n_queries, dim); a thread searches one query at a time.

        Parameters
        ----------
        most : int
            T': points measured at most; at least k are.
        ratio : float, optional
            c of the early stop, with the p_tau that has `SUCCESS` at this T'. Without it there is no early stop.
        threads : int
            Each has as many of the queries, in one piece.
        """
        stop = np.inf
        if ratio is not None:
            share = min(1.0, most / len(self.vectors))
            degrees = self.directions.shape[1]
            stop = chi_square_quantile(p_tau(ratio, share, degrees), degrees) / ratio**2
        projected = _project(queries, self.directions)
        queries = np.array(queries, self.vectors.dtype, order="C")

        def some(front: tree.Front, queries: Any, projected: Any) -> Any:
            return _search(self.vectors, self.tree, front, queries, projected, k, max(most, k), stop)

        if threads == 1:
            return Found(*some(self._front(0), queries, projected))
        parts = [np.array_split(of_queries, threads) for of_queries in (queries, projected)]
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(some, map(self._front, range(threads)), *parts))
        return Found(*(np.concatenate(one) for one in zip(*found, strict=True)))

    def _front(self, thread: int) -> tree.Front:
        """Return the room of a thread's traversals, which stays."""
        while len(self._fronts) <= thread:
            self._fronts.append(tree.front(self.tree))
        return self._fronts[thread]


def _project(vectors: Any, directions: Any) -> Any:
    step = 1 << 16
    return np.concatenate(
        [vectors[at : at + step].astype(np.float32) @ directions for at in range(0, len(vectors), step)]
    )


@kernel
def _search(
    vectors: Any, leaves: Any, front: Any, queries: Any, projected: Any, k: int, most: int, stop: float
) -> Any:
    n_queries = len(queries)
    rows, measured = np.full((n_queries, k), -1, np.int64), np.zeros(n_queries, np.int64)
    for i in range(n_queries):
        distances = np.full(k, np.inf, np.float32)
        tree.begin(front, leaves, projected[i])
        while measured[i] < most:
            place, apart = tree.advance(front, leaves, projected[i])
            if place < 0 or apart >= stop * distances[-1]:
                break
            measured[i] += 1
            insert(distances, rows[i], squared_distance(vectors[place], queries[i]), leaves.rows[place])
    return rows, measured


def chi_square(x: float, degrees: int = DIMENSIONS) -> float:
    """Return the chi-square distribution function of an even number of degrees of freedom."""
    terms = [1.0]
    for i in range(1, degrees // 2):
        terms.append(terms[-1] * x / 2 / i)
    return -math.expm1(-x / 2 + math.log(sum(terms)))


def chi_square_quantile(share: float, degrees: int = DIMENSIONS) -> float:
    """Return the inverse of `chi_square`."""
    return _root(lambda x: chi_square(x, degrees) - share, 0.0, 40.0 * degrees)


def p_tau(ratio: float, share: float, degrees: int = DIMENSIONS) -> float:
    """Return the threshold of the early stop that has `SUCCESS` when a `share` T' / n of the points may be measured.

    Of points beyond c times the nearest distance a share Psi(Psi^-1(p) / c^2) comes before the nearest with probability
    p; by Markov more than T' do so with at most that share over T'. The least p with enough left, or the p with most.
    """

    def left(p: float) -> float:
        return p - chi_square(chi_square_quantile(p, degrees) / ratio**2, degrees) / share - SUCCESS

    tried = np.linspace(SUCCESS, 0.999, 200)
    values = [left(p) for p in tried]
    if max(values) < 0:
        return float(tried[int(np.argmax(values))])
    last = next(i for i, value in enumerate(values) if value >= 0)
    return float(tried[0]) if last == 0 else _root(left, float(tried[last - 1]), float(tried[last]))


def _root(function: Any, low: float, high: float) -> float:
    """Bisect an increasing function."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return high
