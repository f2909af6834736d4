"""Overlapping shards: balanced cells of space, and a border strip whose vectors belong to two of them.

DiskANN (section 3.3) assigns every vector to its two nearest k-means centroids, so that the shard graphs share
vertices and their union is connected; twice the vectors mean twice the work. Only vectors near a border need to be
shared. Here a vector goes to its own cell, and also to the second nearest cell if it lies in a strip along the
boundary. The width of the strip follows from the wanted share of vectors. Cells are those of a power diagram
(`builders.cluster.balanced`), so they hold nearly equal numbers.

A cell that is still too large, because its vectors are equal or nearly equal, is cut at random: each of its vectors
goes to two of its parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.balanced import balanced_centroids
from indexmill.builders.nearest.products import nearest_points, power_distances
from indexmill.formats.errors import BudgetError

#: Most shards of a vector.
FANOUT = 2
#: Tries, each with one more cell, before cells are cut at random.
_MORE_CELLS = 4
#: Safety margin of a shard's size, in standard errors of the sample.
_SIGMAS = 4.0


@dataclass(frozen=True, eq=False)
class ShardPlan:
    """Assignment of vectors to shards.

    Attributes
    ----------
    centroids : float32 array, shape (n_cells, dim)
    weights : float32 array, shape (n_cells,)
        A vector belongs to the cell of least ``|x - c|^2 + w``.
    border : float
        Half the width of the strip, as a distance.
    parts : int64 array, shape (n_cells,)
        Parts of each cell; 1 for nearly all cells.
    """

    centroids: NDArray[np.float32]
    weights: NDArray[np.float32]
    border: float
    parts: NDArray[np.int64]

    @property
    def n_shards(self) -> int:
        """Number of shards, numbered cell by cell."""
        return int(self.parts.sum())

    def assign(
        self, vectors: NDArray[np.generic], first: int, threads: int = 1
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the shards of `vectors`, shape (m, dim), whose vector ids start at `first`.

        Returns
        -------
        shards : uint32 array, shape (k,)
        rows : int64 array, shape (k,)
            Row of `vectors` in the shard at the same place of `shards`; every row occurs once or twice.
        """
        m = len(vectors)
        if len(self.centroids) == 1:
            cells, shared = np.zeros((m, 2), np.int64), np.zeros(m, bool)
        else:
            cells = nearest_points(vectors, self.centroids, 2, threads, weights=self.weights).astype(np.int64)
            shared = border_gaps(vectors, cells, self.centroids, self.weights) < self.border
        starts = np.cumsum(self.parts) - self.parts
        ids = np.arange(first, first + m)
        parts = self.parts[cells[:, 0]]
        cut = parts > 1
        own = starts[cells[:, 0]] + ids % parts
        # With growing ids, the second part of a cut cell runs through all other parts: every two parts share vectors.
        step = 1 + ids // parts % np.maximum(parts - 1, 1)
        other_part = starts[cells[:, 0]] + (ids + step) % parts
        other_cell = starts[cells[:, 1]] + ids % self.parts[cells[:, 1]]
        second = np.where(cut, other_part, other_cell)
        again = np.flatnonzero(cut | shared)
        shards = np.concatenate([own, second[again]]).astype(np.uint32)
        return shards, np.concatenate([np.arange(m), again])


def border_gaps(
    vectors: NDArray[np.generic],
    cells: NDArray[np.int64],
    centroids: NDArray[np.float32],
    weights: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the distance of each vector to the plane between its two nearest cells, float32 (m,)."""
    gaps = np.empty(len(vectors), np.float32)
    for rows, distances in power_distances(vectors, centroids, weights):
        near, far = (np.take_along_axis(distances, cells[rows, i : i + 1], 1)[:, 0] for i in (0, 1))
        between = centroids[cells[rows, 0]] - centroids[cells[rows, 1]]
        apart = np.sqrt(np.einsum("ij,ij->i", between, between))
        gaps[rows] = (far - near) / np.maximum(2 * apart, np.finfo(np.float32).tiny)
    return gaps


def plan_shards(
    sample: NDArray[np.generic], n: int, shard_vectors: int, overlap: float, seed: int, threads: int = 1
) -> ShardPlan:
    """Fit the fewest shards of at most `shard_vectors` vectors each.

    Parameters
    ----------
    sample : array, shape (n_sample, dim)
        Rows drawn at random from the `n` vectors.
    overlap : float
        Share of the vectors that belong to a second shard, 0 to 1.

    Raises
    ------
    BudgetError
        If the sample is too small for so many shards.
    """
    n_cells = max(2, -(-int(n * (1 + overlap)) // shard_vectors))
    if n_cells > len(sample) // 4:
        raise BudgetError(
            f"shard_vectors: {n:,} vectors in shards of {shard_vectors:,} are {n_cells:,} shards, too many for a "
            f"sample of {len(sample):,}; raise --memory, --shard-vectors or --sample-vectors"
        )
    for more in range(_MORE_CELLS + 1):
        plan, largest = _fit(sample, n, n_cells + more, overlap, seed, threads)
        if largest <= shard_vectors:
            return plan
    return _cut(plan, sample, n, shard_vectors, threads)


def _fit(
    sample: NDArray[np.generic], n: int, n_cells: int, overlap: float, seed: int, threads: int
) -> tuple[ShardPlan, float]:
    """Return a plan without cuts, and a bound that its largest shard very rarely exceeds."""
    centroids, weights = balanced_centroids(sample, n_cells, seed, threads)
    parts = np.ones(len(centroids), np.int64)
    plan = ShardPlan(centroids, weights, 0.0, parts)
    if len(centroids) > 1:
        cells = nearest_points(sample, centroids, 2, threads, weights=weights).astype(np.int64)
        gaps = border_gaps(sample, cells, centroids, weights)
        plan = ShardPlan(centroids, weights, float(np.quantile(gaps, overlap)), parts)
    return plan, float(_largest(plan, sample, n, threads).max())


def _largest(plan: ShardPlan, sample: NDArray[np.generic], n: int, threads: int) -> NDArray[np.float64]:
    """Return a bound for each shard's size, from the sample, that is very rarely exceeded."""
    shards, _ = plan.assign(sample, 0, threads)
    share = np.bincount(shards, minlength=plan.n_shards) / len(sample)
    error = np.sqrt(share * np.maximum(1 - share, 0) / len(sample)) if len(sample) < n else 0.0
    largest: NDArray[np.float64] = n * np.minimum(share + _SIGMAS * error, 1.0)
    return largest


def _cut(plan: ShardPlan, sample: NDArray[np.generic], n: int, shard_vectors: int, threads: int) -> ShardPlan:
    """Cut the cells that are too large."""
    sizes = _largest(plan, sample, n, threads)
    parts = np.where(sizes > shard_vectors, np.ceil(FANOUT * sizes / shard_vectors) + 1, 1).astype(np.int64)
    return ShardPlan(plan.centroids, plan.weights, plan.border, parts)
