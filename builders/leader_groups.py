"""Leaders in k-means groups, probed by matrix products: the fast way to assign many vectors.

A vector is compared with all groups' centroids and then with the leaders of every group whose centroid is at most
a slack farther, in squared distance, than the nearest. The slack is fitted: vectors with known nearest leaders say
how large it must be for the wanted share of them. (IVF's probes, with a margin in place of a fixed number: vectors
well inside a group probe few, those between groups many.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import comparable
from indexmill.builders.leaders import checked
from indexmill.builders.nearest import augment, nearest_points, origin_of, with_one
from indexmill.builders.parallel import map_blocks
from indexmill.builders.probe import PROBE_BLOCK, fill_up, make_groups, nearest_members, pairs_within
from indexmill.formats.errors import ConfigError

#: Groups for a number of leaders: its square root times this. More make more and smaller products.
_GROUPS_PER_ROOT = 2.0
#: Lloyd's steps that fit the centroids, from random leaders.
_LLOYD_STEPS = 8
#: Vectors that fit the slack, at most.
_FIT_VECTORS = 4096
#: Keeps the first centroids apart from other draws with the same seed.
_STREAM = 0x6209


class LeaderGroups:
    """An index over leaders, made to agree with brute force on about `agreement` of the vectors.

    Parameters
    ----------
    leaders : array, shape (n_leaders, dim)
    sample : array, shape (n_sample, dim)
        Vectors like those to be assigned, none of them a leader; the first 4,096 fit the slack.
    fanout : int
        The slack brings the nearest `fanout` leaders within reach.
    agreement : float
        Share of the sample's true (vector, leader) pairs within reach; 1 for all of them.
    seed : int
    threads : int
        Does not reach the result.

    Raises
    ------
    ConfigError
        If the sample is empty, or as `LeaderIndex.nearest`.

    Notes
    -----
    Memory: the leaders twice, once as float32; a thread at work holds its 8,192 vectors as float32, 32 KiB times
    the number of groups, and 12 bytes a probe.
    """

    def __init__(
        self,
        leaders: NDArray[Any],
        sample: NDArray[Any],
        *,
        fanout: int = 1,
        agreement: float = 0.993,
        seed: int,
        threads: int = 1,
    ) -> None:
        self.leaders = comparable(leaders)
        rows = checked(sample, self.leaders, fanout)[:_FIT_VECTORS]
        if len(rows) == 0:
            raise ConfigError("sample: no vectors; the groups' slack is fitted to some")
        points = self.leaders.astype(np.float32)
        self._origin = origin_of(points, self.leaders.dtype.kind == "u")
        centroids, group = _fit_groups(points, seed, threads)
        self._coarse = augment(centroids - self._origin)
        self._groups = make_groups(self.leaders, group, len(centroids), self._origin)
        self.slack = self._fit_slack(rows, points, group, fanout, agreement, threads)

    def nearest(self, vectors: NDArray[Any], fanout: int = 1, threads: int = 1) -> NDArray[np.uint32]:
        """See `builders.leaders.LeaderIndex`."""
        rows = checked(vectors, self.leaders, fanout)

        def block(first: int, last: int) -> NDArray[np.uint32]:
            augmented = with_one(rows[first:last] - self._origin)
            scores = augmented @ self._coarse
            found = nearest_members(augmented, self._groups, pairs_within(scores, self.slack), fanout)
            fill_up(augmented, self._groups, found)
            return found

        parts = list(map_blocks(block, len(rows), PROBE_BLOCK, threads))
        return np.concatenate(parts) if parts else np.empty((0, fanout), np.uint32)

    def _fit_slack(
        self,
        rows: NDArray[Any],
        points: NDArray[np.float32],
        group: NDArray[np.uint32],
        fanout: int,
        agreement: float,
        threads: int,
    ) -> float:
        """Return by how much the centroid of a true leader's group may be farther than the nearest centroid."""
        scores = with_one(rows - self._origin) @ self._coarse
        homes = group[nearest_points(rows, points, fanout, threads)]
        farther = np.take_along_axis(scores, homes.astype(np.int64), 1) - scores.min(axis=1, keepdims=True)
        return float(np.quantile(farther, agreement, method="higher"))


def _fit_groups(
    points: NDArray[np.float32], seed: int, threads: int
) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
    """Cluster the leaders; returns the centroids and each leader's nearest centroid."""
    k = max(1, round(_GROUPS_PER_ROOT * len(points) ** 0.5))
    first = np.random.default_rng([seed, _STREAM]).choice(len(points), min(k, len(points)), replace=False)
    centroids = points[np.sort(first)]
    for _ in range(_LLOYD_STEPS):
        group = nearest_points(points, centroids, 1, threads)[:, 0]
        order = np.argsort(group, kind="stable")
        _, starts, counts = np.unique(group[order], return_index=True, return_counts=True)
        sums = np.add.reduceat(points[order], starts, axis=0, dtype=np.float64)
        centroids = (sums / counts[:, None]).astype(np.float32)  # groups without a leader are gone
    return centroids, nearest_points(points, centroids, 1, threads)[:, 0]
