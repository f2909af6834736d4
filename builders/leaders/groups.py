"""Leaders in k-means groups, searched for a block of vectors at a time: the fastest assignment of many vectors.

A vector is compared with the centroids of all groups, then with the leaders of every group whose squared distance
exceeds the least one by at most a slack. The slack is fitted to vectors with known nearest leaders, so that the wanted
share of these leaders is found. (As IVF probes, with a margin in place of a fixed number of lists: a vector inside a
group searches few groups, a vector between groups many.)

uint8 vectors are compared in integers. float32 vectors are compared by codes of one byte a component, and the best few
are ranked by exact distance; if codes lose too many leaders, by matrix products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import comparable
from indexmill.builders.leaders.base import ExactLeaders, checked
from indexmill.builders.leaders.group_search import SEARCHED_ROWS, fill_up, make_groups, pairs_within
from indexmill.builders.nearest.byte_codes import ByteCodes, fit_codes, rank_exactly
from indexmill.builders.nearest.panels import fits_panels
from indexmill.builders.nearest.points import Points
from indexmill.builders.nearest.products import nearest_points, origin_of
from indexmill.builders.streams import LEADER_GROUPS
from indexmill.formats.errors import ConfigError
from indexmill.reader.threads import map_blocks

#: Number of groups, as a multiple of the square root of the number of leaders. More groups make smaller products.
_GROUPS_PER_ROOT = 2.0
#: Lloyd steps that fit the centroids, starting from random leaders.
_LLOYD_STEPS = 8
#: Most vectors that the slack is fitted to.
_FIT_VECTORS = 4096
#: Candidates found by codes beyond the fanout, and the share of the permitted disagreement that codes may cause.
_SPARE, _LOST = 3, 0.1


class LeaderGroups:
    """Index over leaders that agrees with brute force on approximately a share `agreement` of the vectors.

    Parameters
    ----------
    leaders : array, shape (n_leaders, dim)
    sample : array, shape (n_sample, dim)
        Vectors like those to be assigned, none of them a leader; the slack is fitted to the first 4,096.
    fanout : int
        Leaders of a vector that the slack is to reach.
    agreement : float
        Share of the sample's true (vector, leader) pairs that the slack is to reach.
    seed : int
    threads : int
        Does not change the result.

    Raises
    ------
    ConfigError
        If the sample is empty, or as `LeaderIndex.nearest`.

    Notes
    -----
    Memory: the leaders, and one more byte a component (four if codes lose too many leaders). Each thread holds its
    8,192 vectors in the same form, 2 KiB times the number of groups, and 16 bytes a vector and group that it searches.
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
        truth = ExactLeaders(self.leaders).nearest(rows, fanout, threads)
        means, group = _fit_groups(self.leaders.astype(np.float32), seed, threads)
        self.codes = self._fit_codes(rows, truth, agreement, threads)
        points: NDArray[Any] = self.leaders
        centroids: NDArray[Any] = means if points.dtype == np.float32 else np.rint(means).astype(np.uint8)
        if self.codes is not None:
            points, centroids = self.codes.encode(points), self.codes.encode(means)
        origin = origin_of(points, points.dtype == np.uint8)
        self._centroids = make_groups(centroids, np.zeros(len(centroids), np.uint32), 1, origin)
        self._groups = make_groups(points, group, len(centroids), origin)
        self.slack = self._fit_slack(rows, group[truth], agreement)

    def nearest(self, vectors: NDArray[Any], fanout: int = 1, threads: int = 1) -> NDArray[np.uint32]:
        """See `builders.leaders.base.LeaderIndex`."""
        rows = checked(vectors, self.leaders, fanout)

        def block(first: int, last: int) -> NDArray[np.uint32]:
            return self._nearest(rows[first:last], fanout)

        parts = list(map_blocks(block, len(rows), SEARCHED_ROWS, threads))
        return np.concatenate(parts) if parts else np.empty((0, fanout), np.uint32)

    def _nearest(self, rows: NDArray[Any], fanout: int) -> NDArray[np.uint32]:
        """Return the nearest leaders of one block of rows."""
        keep = fanout if self.codes is None else min(fanout + _SPARE, len(self.leaders))
        prepared = self._prepared(rows)
        candidates = self._groups.nearest(prepared, pairs_within(self._centroids, prepared, self.slack), keep)
        fill_up(prepared, self._groups, candidates)
        if self.codes is None:
            return candidates
        found = np.empty((len(rows), fanout), np.uint32)
        rank_exactly(rows, self.leaders, candidates, found)
        return found

    def _prepared(self, rows: NDArray[Any]) -> NDArray[Any]:
        return self._groups.prepared(rows if self.codes is None else self.codes.encode(rows))

    def _fit_codes(
        self, rows: NDArray[Any], truth: NDArray[np.uint32], agreement: float, threads: int
    ) -> ByteCodes | None:
        """Return codes of float32 leaders that lose few of the true leaders of `rows`; None if there are none."""
        if self.leaders.dtype == np.uint8:
            return None
        codes = fit_codes(self.leaders)
        leader_codes, row_codes = codes.encode(self.leaders), codes.encode(rows)
        if not fits_panels(leader_codes):
            return None
        keep = min(truth.shape[1] + _SPARE, len(leader_codes))
        kept = Points(leader_codes).nearest(row_codes, keep, threads)
        lost = [np.mean((kept != column[:, None]).all(axis=1)) for column in truth.T]
        return codes if max(lost) <= _LOST * (1 - agreement) else None

    def _fit_slack(self, rows: NDArray[Any], homes: NDArray[np.uint32], agreement: float) -> float:
        """Return the slack: how much farther than the nearest centroid that of a true leader's group may be."""
        scores = self._centroids.scores(self._prepared(rows), 0).astype(np.float64)
        farther = np.take_along_axis(scores, homes.astype(np.int64), 1) - scores.min(axis=1, keepdims=True)
        return float(np.quantile(farther, agreement, method="higher"))


def _fit_groups(
    points: NDArray[np.float32], seed: int, threads: int
) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
    """Cluster the leaders; return the centroids and each leader's nearest centroid."""
    k = max(1, round(_GROUPS_PER_ROOT * len(points) ** 0.5))
    first = np.random.default_rng([seed, LEADER_GROUPS]).choice(
        len(points), min(k, len(points)), replace=False
    )
    centroids = points[np.sort(first)]
    for _ in range(_LLOYD_STEPS):
        group = nearest_points(points, centroids, 1, threads)[:, 0]
        order = np.argsort(group, kind="stable")
        _, starts, counts = np.unique(group[order], return_index=True, return_counts=True)
        sums = np.add.reduceat(points[order], starts, axis=0, dtype=np.float64)
        centroids = (sums / counts[:, None]).astype(np.float32)  # groups without a leader disappear
    return centroids, nearest_points(points, centroids, 1, threads)[:, 0]
