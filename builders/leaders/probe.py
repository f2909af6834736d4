"""Nearest members of chosen groups, for many vectors at once.

The step that `leader_tree` and `leader_groups` share. Vectors are taken a block at a time and gathered group by group,
so that a group's points are read once for all vectors that probe it and stay in a core's own cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.leaders.probe_bytes import ByteGroups
from indexmill.builders.leaders.probe_floats import FloatGroups
from indexmill.builders.nearest.panels import NO_SCORE, NOTHING, fits_panels

#: Vectors of one block. Part of the result: the last bits of a float product may depend on the rows it is made of.
PROBE_BLOCK = 8192
#: Rows whose groups are chosen together: their scores stay in a core's own cache.
_CHOSEN_ROWS = 512


class Pairs(NamedTuple):
    """Which rows of a block probe which groups: group g is probed by ``rows[starts[g]:starts[g + 1]]``, ascending."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]  # (n_groups + 1,)


class Groups(Protocol):
    """Points in groups. Scores are squared distances less a term of the row's own."""

    @property
    def n_groups(self) -> int:
        """Number of groups, empty ones included."""
        ...

    @property
    def n_points(self) -> int:
        """Number of points."""
        ...

    def prepared(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return vectors, (m, dim) of the points' type, as the methods below take them."""
        ...

    def scores(self, prepared: NDArray[Any], group: int) -> NDArray[Any]:
        """Return the scores of all rows and all points of one group, (m, size)."""
        ...

    def nearest(self, prepared: NDArray[Any], pairs: Pairs, fanout: int) -> NDArray[np.uint32]:
        """Return the `fanout` points nearest to each row among the groups it probes, (m, fanout).

        Nearest first, ties by the smaller id; rows that probe fewer points end in `NOTHING`.
        """
        ...


def make_groups(
    points: NDArray[Any], group: NDArray[np.uint32], n_groups: int, origin: NDArray[np.float32]
) -> Groups:
    """Put uint8 or float32 points (n, dim) into the groups that `group` (n,) names; `origin` as for `augment`."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(n_groups + 1)).astype(np.int64)
    if fits_panels(points):
        return ByteGroups(points[order], order.astype(np.uint32), starts)
    return FloatGroups(points[order], order.astype(np.uint32), starts, origin)


def pairs_of(chosen: NDArray[np.uint32], n_groups: int) -> Pairs:
    """Return the pairs of rows that probe chosen groups: row i those in ``chosen[i]``, (m, b), less `NOTHING`."""
    flat = chosen.ravel()
    order = np.argsort(flat, kind="stable")
    return Pairs(order // chosen.shape[1], np.searchsorted(flat[order], np.arange(n_groups + 1)))


def pairs_within(centroids: Groups, prepared: NDArray[Any], slack: float) -> Pairs:
    """Return the pairs of rows that probe every group scored at most `slack` above their best.

    `centroids` holds them all in one group.
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


@njit(nogil=True, cache=True)
def _choose(scores: Any, limits: Any, counts: Any) -> Any:  # pragma: no cover - compiled
    """Return the groups within reach, row after row; writes how many to `counts`."""
    m, k = scores.shape
    chosen, at = np.empty(m * k + 1, np.uint32), 0
    for i in range(m):
        limit, before = limits[i], at
        for g in range(k):
            chosen[at] = g  # no branch: what is written beyond reach is written over
            at += scores[i, g] <= limit
        counts[i] = at - before
    return chosen[:at].copy()


@njit(nogil=True, cache=True)
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
    """Let rows of `found` (m, fanout) that end in `NOTHING` look in all groups; for few rows."""
    short = np.flatnonzero(found[:, -1] == NOTHING)
    if len(short):
        everywhere = np.tile(np.arange(groups.n_groups, dtype=np.uint32), (len(short), 1))
        found[short] = groups.nearest(prepared[short], pairs_of(everywhere, groups.n_groups), found.shape[1])
