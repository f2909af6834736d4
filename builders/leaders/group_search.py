"""Nearest points in chosen groups of points, for many vectors at once: the common step of trees and groups.

A block of vectors is gathered group by group, so that the points of a group are read once for all vectors that search
it and stay in a core's own cache. uint8 points are compared in integers, exactly; float32 points by matrix products,
which cost a tenth of single distances.
"""

from __future__ import annotations

import itertools
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.nearest.pairs import Pairs, pairs_of
from indexmill.builders.nearest.panels import (
    NO_SCORE,
    NOTHING,
    all_scores,
    fits_panels,
    in_panels,
    merge_nearest,
)
from indexmill.builders.nearest.products import augment, keep_nearest, with_one
from indexmill.formats.kernel import kernel

#: Vectors of a block. It affects results: the last bits of a float32 product may depend on its shape.
SEARCHED_ROWS = 8192
#: Rows whose groups are chosen together, so that their scores stay in a core's own cache.
_CHOSEN_ROWS = 512
#: Rows of a product, which stay in a core's own cache with a group of a few hundred points.
_TILE_ROWS = 1024
#: Most points of a product, for the same reason and to bound memory.
_TILE_MEMBERS = 1024


class Groups(Protocol):
    """Points in groups. A score is a squared distance minus a term that depends on the row alone."""

    @property
    def n_groups(self) -> int:
        """Number of groups, empty ones included."""
        ...

    @property
    def n_points(self) -> int:
        """Number of points."""
        ...

    def prepared(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return vectors (m, dim), of the points' type, in the form that the other methods take."""
        ...

    def scores(self, prepared: NDArray[Any], group: int) -> NDArray[Any]:
        """Return the scores of all rows with all points of a group, (m, size)."""
        ...

    def nearest(self, prepared: NDArray[Any], pairs: Pairs, fanout: int) -> NDArray[np.uint32]:
        """Return the `fanout` points nearest to each row among the groups that it searches, (m, fanout).

        Nearest first, ties by the smaller id. Rows that search fewer than `fanout` points end in `NOTHING`.
        """
        ...


class ByteGroups:
    """See `Groups`.

    Parameters
    ----------
    points : uint8 array, shape (n, dim)
        Group after group.
    ids : uint32 array, shape (n,)
        Ascending within a group.
    starts : int64 array, shape (n_groups + 1,)
        The points of group g are ``starts[g]`` to ``starts[g + 1]``.
    """

    def __init__(self, points: NDArray[np.uint8], ids: NDArray[np.uint32], starts: NDArray[np.int64]) -> None:
        self._sizes = np.diff(starts)
        self._panels = in_panels(points, ids, starts)

    @property
    def n_groups(self) -> int:
        """See `Groups`."""
        return len(self._sizes)

    @property
    def n_points(self) -> int:
        """See `Groups`."""
        return int(self._sizes.sum())

    def prepared(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """See `Groups`; returned unchanged."""
        return vectors

    def scores(self, prepared: NDArray[Any], group: int) -> NDArray[Any]:
        """See `Groups`; int32."""
        first, last = self._panels.starts[group : group + 2]
        offsets = self._panels.offsets[first:last]
        out = np.empty((len(prepared), offsets.size), np.int32)
        all_scores(prepared, np.arange(len(prepared)), self._panels.bytes[first:last], offsets, out)
        return out[:, : self._sizes[group]]

    def nearest(self, prepared: NDArray[Any], pairs: Pairs, fanout: int) -> NDArray[np.uint32]:
        """See `Groups`."""
        scores = np.full((len(prepared), fanout), NO_SCORE, np.int32)
        found = np.full((len(prepared), fanout), NOTHING, np.uint32)
        _merge_groups(prepared, pairs.rows, pairs.starts, *self._panels, scores, found)
        return found


@kernel
def _merge_groups(
    vectors: Any,
    rows: Any,
    row_starts: Any,
    data: Any,
    offsets: Any,
    ids: Any,
    starts: Any,
    scores: Any,
    found: Any,
) -> None:  # pragma: no cover - compiled
    """Merge each group's points into the lists of the rows that search it."""
    for g in range(starts.size - 1):
        mine, first, last = rows[row_starts[g] : row_starts[g + 1]], starts[g], starts[g + 1]
        if mine.size and last > first:
            merge_nearest(
                vectors, mine, data[first:last], offsets[first:last], ids[first:last], scores, found
            )


class FloatGroups:
    """See `Groups`.

    Parameters
    ----------
    points : array, shape (n, dim)
        Group after group.
    ids : uint32 array, shape (n,)
        Ascending within a group.
    starts : int64 array, shape (n_groups + 1,)
        The points of group g are ``starts[g]`` to ``starts[g + 1]``.
    origin : float32 array, shape (dim,)
        See `builders.nearest.products.origin_of`.
    """

    def __init__(
        self,
        points: NDArray[Any],
        ids: NDArray[np.uint32],
        starts: NDArray[np.int64],
        origin: NDArray[np.float32],
    ) -> None:
        self._ids, self._starts, self._origin = ids, starts, origin
        self._augmented = [
            augment(points[first:last].astype(np.float32) - origin)
            for first, last in itertools.pairwise(starts)
        ]

    @property
    def n_groups(self) -> int:
        """See `Groups`."""
        return len(self._augmented)

    @property
    def n_points(self) -> int:
        """See `Groups`."""
        return len(self._ids)

    def prepared(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """See `Groups`; float32 (m, dim + 1), minus the origin and with a column of ones."""
        return with_one(vectors - self._origin)

    def scores(self, prepared: NDArray[Any], group: int) -> NDArray[Any]:
        """See `Groups`; float32."""
        scores: NDArray[np.float32] = prepared @ self._augmented[group]
        return scores

    def nearest(self, prepared: NDArray[Any], pairs: Pairs, fanout: int) -> NDArray[np.uint32]:
        """See `Groups`."""
        distances = np.full((len(prepared), fanout), np.inf, np.float32)
        found = np.full((len(prepared), fanout), NOTHING, np.uint32)
        gathered = np.empty((_TILE_ROWS, prepared.shape[1]), np.float32)
        most = max((min(part.shape[1], _TILE_MEMBERS) for part in self._augmented), default=0)
        scores = np.empty(_TILE_ROWS * most, np.float32)
        for g in np.flatnonzero(np.diff(pairs.starts) * np.diff(self._starts)):
            members = self._ids[self._starts[g] : self._starts[g + 1]]
            searching = pairs.rows[pairs.starts[g] : pairs.starts[g + 1]]
            for first in range(0, len(searching), _TILE_ROWS):
                rows = searching[first : first + _TILE_ROWS]
                np.take(prepared, rows, axis=0, out=gathered[: len(rows)], mode="clip")
                for at in range(0, len(members), _TILE_MEMBERS):
                    ids = members[at : at + _TILE_MEMBERS]
                    tile = scores[: len(rows) * len(ids)].reshape(len(rows), len(ids))
                    points = self._augmented[g][:, at : at + _TILE_MEMBERS]
                    np.matmul(gathered[: len(rows)], points, out=tile)
                    keep_nearest(tile, rows, ids, distances, found)
        return found


def make_groups(
    points: NDArray[Any], group: NDArray[np.uint32], n_groups: int, origin: NDArray[np.float32]
) -> Groups:
    """Return points, uint8 or float32 (n, dim), in the groups named by `group` (n,); `origin` as for `FloatGroups`."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(n_groups + 1)).astype(np.int64)
    if fits_panels(points):
        return ByteGroups(points[order], order.astype(np.uint32), starts)
    return FloatGroups(points[order], order.astype(np.uint32), starts, origin)


def pairs_within(centroids: Groups, prepared: NDArray[Any], slack: float) -> Pairs:
    """Return the pairs of rows and the groups whose centroid scores at most `slack` above the row's best one.

    `centroids` holds all centroids in one group.
    """
    n_groups, counts, parts = 0, np.empty(len(prepared), np.int64), []
    for first in range(0, len(prepared), _CHOSEN_ROWS):
        scores = centroids.scores(prepared[first : first + _CHOSEN_ROWS], 0)
        n_groups = scores.shape[1]
        limits = scores.min(axis=1).astype(np.float64) + slack
        if scores.dtype.kind == "i":
            limits = np.minimum(limits, NO_SCORE)
        parts.append(_choose(scores, limits.astype(scores.dtype), counts[first:]))
    return Pairs(*_by_group(counts, np.concatenate(parts), n_groups))


@kernel
def _choose(scores: Any, limits: Any, counts: Any) -> Any:  # pragma: no cover - compiled
    """Return the groups within the limits, row after row; write their numbers to `counts`."""
    m, k = scores.shape
    chosen, at = np.empty(m * k + 1, np.uint32), 0
    for i in range(m):
        limit, before = limits[i], at
        for g in range(k):
            chosen[at] = g  # without a branch: a group beyond the limit is overwritten
            at += scores[i, g] <= limit
        counts[i] = at - before
    return chosen[:at].copy()


@kernel
def _by_group(counts: Any, chosen: Any, n_groups: int) -> Any:  # pragma: no cover - compiled
    starts = np.zeros(n_groups + 1, np.int64)
    for g in chosen:
        starts[g + 1] += 1
    starts = np.cumsum(starts)
    at, rows, j = starts[:-1].copy(), np.empty(chosen.size, np.int64), 0
    for i in range(counts.size):
        for _ in range(counts[i]):
            g = chosen[j]
            rows[at[g]] = i
            at[g] += 1
            j += 1
    return rows, starts


def fill_up(prepared: NDArray[Any], groups: Groups, found: NDArray[np.uint32]) -> None:
    """Search all groups for the rows of `found` (m, fanout) that end in `NOTHING`; meant for few rows."""
    short = np.flatnonzero(found[:, -1] == NOTHING)
    if len(short):
        all_groups = np.tile(np.arange(groups.n_groups, dtype=np.uint32), (len(short), 1))
        found[short] = groups.nearest(prepared[short], pairs_of(all_groups, groups.n_groups), found.shape[1])
