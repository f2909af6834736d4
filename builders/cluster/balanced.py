"""Balanced hierarchical k-means: clusters of nearly equal size, also for vectors outside the sample.

1. The sample is split in two, recursively, along the line between two means, so that the wanted share of rows lies on
   each side (hierarchical balanced k-means; SPANN, BBAnn and AIO-ANN place vectors so).
2. The means of the leaves become the sites of a power diagram: x belongs to the site c with the least
   ``|x - c|^2 + w_c``. The weights w are fitted so that every cell holds as many rows as its leaf. This balances the
   sample by a rule that applies to any vector (Aurenhammer, Hoffmann and Aronov 1998).
3. Sites move to the means of their cells and weights are fitted again, a few times, as in Lloyd's algorithm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.power import fit_weights
from indexmill.builders.nearest.products import augment, with_one
from indexmill.formats.errors import ConfigError
from indexmill.formats.kernel import kernel
from indexmill.reader.threads import map_blocks, run_blocks

#: Largest difference of a cell of the sample from its share, as a fraction, unless equal rows prevent it.
BALANCE_TOLERANCE = 0.01
#: Rounds of moving sites to means; further rounds improve distances within clusters by less than 0.5% each.
_ROUNDS = 4
#: Balanced two-means steps of one split.
_SPLIT_STEPS = 6
#: Steps of the power iteration that finds the first direction of a split.
_DIRECTION_STEPS = 8
#: Tolerance of balance while sites still move.
_LOOSE = 0.05
#: Rows farther from the median than this multiple of the median distance are pulled in: squares 10,000 times larger
#: still leave three digits of float32 to the other rows.
_FAR = 100.0
#: Rows of a matrix product.
_BLOCK = 8192


def balanced_centroids(
    sample: NDArray[Any], n_clusters: int, seed: int, threads: int = 1
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cluster `sample` into cells of equal size; assign vectors with ``nearest_points(..., weights=weights)``.

    Parameters
    ----------
    sample : array, shape (n_sample, dim)
        Finite. Rows very far from all others count as nearer, so that one of them cannot spoil every product.
    n_clusters : int
        Wanted number; fewer are returned if the sample has fewer distinct rows, or if equal rows fill whole clusters.
    seed : int
        Decides the start of the search for a split's direction.
    threads : int
        Does not change the result.

    Returns
    -------
    centroids : float32 array, shape (k, dim)
        k at most `n_clusters`.
    weights : float32 array, shape (k,)
        Squared distances to add, with mean zero.

    Raises
    ------
    ConfigError
        If `n_clusters` is below 1 or the sample is empty.

    Notes
    -----
    Every cell holds its share of the sample within `BALANCE_TOLERANCE`, or within one row. The share is 1 / k, except
    for equal rows, which always stay together. Of m new vectors of the same distribution, a cell gets its share within
    that tolerance plus four standard deviations of sampling, ``4 sqrt(k / m + k / n_sample)`` of a share. The fit stops
    after a fixed number of steps. These are too few for cells in a long chain: of 64 along one line, some hold twice
    their share.

    Memory: the sample as float32 twice, and ``4 * n_sample * n_clusters`` bytes.
    """
    if n_clusters < 1 or len(sample) == 0:
        raise ConfigError(
            f"n_clusters: expected at least 1 cluster of at least 1 row, got {n_clusters} of {len(sample)} rows; "
            "give a larger sample or a positive number of clusters"
        )
    rows, origin = _centred(sample)
    leaves = _split(rows, n_clusters, seed, threads)
    targets = np.array([len(leaf) for leaf in leaves], np.int64)
    sites = np.stack([rows[leaf].mean(axis=0, dtype=np.float64) for leaf in leaves]).astype(np.float32)
    weights = np.zeros(len(sites))
    if len(sites) > 1:
        distances = _distances(rows, sites, threads)
        warm = float(distances.std(axis=1).mean())
        for round_ in range(_ROUNDS):
            weights = fit_weights(distances, weights, targets, warm / (16 if round_ else 1), _LOOSE, threads)
            cells = (distances + weights.astype(np.float32)).argmin(axis=1)
            sites = _means(rows, cells, sites)
            distances = _distances(rows, sites, threads)
        weights = fit_weights(distances, weights, targets, warm / 16, BALANCE_TOLERANCE / 2, threads)
    return sites + origin, (weights - weights.mean()).astype(np.float32)


def _centred(sample: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the rows minus their component-wise median, with outliers pulled in, and that median."""
    thinned = sample[:: max(1, len(sample) // 4096)]
    origin = np.median(thinned.astype(np.float64), axis=0).astype(np.float32)
    rows = sample.astype(np.float32)
    rows -= origin
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    inside = norms[norms > 0]
    if len(inside):
        far = np.flatnonzero(norms > (limit := _FAR * np.median(inside)))
        rows[far] *= (limit / norms[far])[:, None].astype(np.float32)
    return rows, origin


def _split(rows: NDArray[np.float32], n_leaves: int, seed: int, threads: int) -> list[NDArray[np.int64]]:
    """Divide the rows into at most `n_leaves` sets of nearly equal size; return the row numbers of each."""
    open_sets = [(np.arange(len(rows)), n_leaves)]
    while any(wanted > 1 for _, wanted in open_sets):
        level = open_sets

        def block(first: int, last: int) -> list[tuple[NDArray[np.int64], int]]:
            return [part for ids, wanted in level[first:last] for part in _halve(rows, ids, wanted, seed)]  # noqa: B023

        open_sets = [part for parts in map_blocks(block, len(level), 1, threads) for part in parts]
    return [ids for ids, _ in open_sets]


def _halve(
    rows: NDArray[np.float32], ids: NDArray[np.int64], wanted: int, seed: int
) -> list[tuple[NDArray[np.int64], int]]:
    """Divide one set of rows in two; return both with the number of leaves that each is to have.

    A set stays whole if equal rows would leave less than half a leaf on one side.
    """
    if wanted == 1:
        return [(ids, 1)]
    mine = rows if len(ids) == len(rows) else rows[ids]
    if len(ids) == 1 or (mine == mine[0]).all():
        return [(ids, 1)]
    share, least = len(ids) * (wanted // 2) / wanted, len(ids) / wanted / 2
    direction, total = _first_direction(mine, seed), mine.sum(axis=0, dtype=np.float64)
    left = None
    for _ in range(_SPLIT_STEPS):
        found = _cut(mine @ direction, share)
        n_left = int(found.sum())
        if min(n_left, len(ids) - n_left) < max(least, 1):
            break
        left = found
        part: NDArray[np.float32] = left.astype(np.float32) @ mine
        direction = ((total - part) / (len(ids) - n_left) - part / n_left).astype(np.float32)
    if left is None:
        return [(ids, 1)]
    n_left = int(left.sum())
    leaves = min(max(round(wanted * n_left / len(ids)), 1), wanted - 1)
    return [(ids[left], leaves), (ids[~left], wanted - leaves)]


def _first_direction(mine: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Return an approximate direction of largest variance, float32 (dim,), by power iteration."""
    mean = mine.mean(axis=0, dtype=np.float64).astype(np.float32)
    direction: Any = np.random.default_rng(seed).standard_normal(mine.shape[1], dtype=np.float32)
    for _ in range(_DIRECTION_STEPS):
        projection = mine @ direction - mean @ direction
        longer = projection @ mine - projection.sum() * mean
        length = np.abs(longer).max()
        if not length > 0:
            break
        direction = longer / length
    result: NDArray[np.float32] = direction
    return result


def _cut(projection: NDArray[np.float32], share: float) -> NDArray[np.bool_]:
    """Mark the smallest values, as close to `share` of them as ties allow; none if all are equal."""
    ordered = np.sort(projection)
    starts = np.concatenate([[0], np.flatnonzero(ordered[1:] > ordered[:-1]) + 1])
    start = starts[np.abs(starts - share).argmin()] if len(starts) > 1 else 0
    below: NDArray[np.bool_] = projection < ordered[start]
    return below


def _distances(rows: NDArray[np.float32], sites: NDArray[np.float32], threads: int) -> NDArray[np.float32]:
    """Return squared distances (m, k), each row minus its |x|^2."""
    augmented = augment(sites)
    out = np.empty((len(rows), len(sites)), np.float32)

    def block(first: int, last: int) -> None:
        np.matmul(with_one(rows[first:last]), augmented, out=out[first:last])

    run_blocks(block, len(rows), _BLOCK, threads)
    return out


def _means(
    rows: NDArray[np.float32], cells: NDArray[np.int64], sites: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the mean of each cell; a cell without rows keeps its site."""
    counts = np.bincount(cells, minlength=len(sites))
    sums = np.zeros(sites.shape)
    _add_rows(rows, cells, sums)
    kept = np.flatnonzero(counts)
    moved = sites.copy()
    moved[kept] = sums[kept] / counts[kept][:, None]
    return moved


@kernel
def _add_rows(rows: Any, cells: Any, sums: Any) -> None:  # pragma: no cover - compiled
    for i in range(len(rows)):
        for j in range(rows.shape[1]):
            sums[cells[i], j] += rows[i, j]
