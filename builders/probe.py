"""Nearest members of chosen groups, for many vectors at once: one matrix product a group.

The step that `leader_tree` and `leader_groups` share. A product costs far less than as
many single distances, so vectors are taken a block at a time and gathered group by group.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.nearest import augment

#: Vectors of one block. Part of the result: the last bits of a product may depend on the rows it is made of.
PROBE_BLOCK = 8192
#: Stands where a row has fewer points than asked for.
NOTHING = 0xFFFFFFFF
#: Rows of one product: with a group of a few hundred members they stay in a core's own cache.
_TILE_ROWS = 1024
#: Members of one product at most, for the same reason and to bound memory.
_TILE_MEMBERS = 1024
#: Scores looked at together: most runs hold nothing nearer than what is known.
_RUN = 64


class Groups(NamedTuple):
    """Points in groups: those of group g are ``ids[starts[g]:starts[g + 1]]``, ascending."""

    ids: NDArray[np.uint32]  # (n_points,)
    starts: NDArray[np.int64]  # (n_groups + 1,)
    augmented: list[
        NDArray[np.float32]
    ]  # a group's points less the origin, ready for products; (dim + 1, size)


class Pairs(NamedTuple):
    """Which rows of a block probe which groups: group g is probed by ``rows[starts[g]:starts[g + 1]]``."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]  # (n_groups + 1,)


def make_groups(points: NDArray[Any], group: NDArray[np.uint32], n_groups: int, origin: Any) -> Groups:
    """Put the points (n, dim) into the groups that `group` (n,) names."""
    ids = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[ids], np.arange(n_groups + 1)).astype(np.int64)
    augmented = [
        augment(points[ids[first:last]].astype(np.float32) - origin)
        for first, last in pairwise(starts.tolist())
    ]
    return Groups(ids.astype(np.uint32), starts, augmented)


def pairs_of(chosen: NDArray[np.uint32], n_groups: int) -> Pairs:
    """Return the pairs of rows that probe chosen groups: row i those in ``chosen[i]``, (m, b), less `NOTHING`."""
    flat = chosen.ravel()
    order = np.argsort(flat, kind="stable")
    return Pairs(order // chosen.shape[1], np.searchsorted(flat[order], np.arange(n_groups + 1)))


def pairs_within(scores: NDArray[np.float32], slack: float) -> Pairs:
    """Return the pairs of rows that probe every group scored at most `slack` above their best, (m, n_groups)."""
    limits = scores.min(axis=1) + np.float32(slack)
    rows, starts = _collect(scores, limits)
    return Pairs(rows, starts)


@njit(nogil=True, cache=True)
def _collect(scores: Any, limits: Any) -> Any:  # pragma: no cover - compiled
    m, k = scores.shape
    counts = np.zeros(k, np.int64)
    for i in range(m):
        for g in range(k):
            counts[g] += scores[i, g] <= limits[i]
    starts = np.zeros(k + 1, np.int64)
    starts[1:] = np.cumsum(counts)
    at, rows = starts[:-1].copy(), np.empty(starts[k], np.int64)
    for i in range(m):
        limit = limits[i]
        for g in range(k):
            if scores[i, g] <= limit:
                rows[at[g]] = i
                at[g] += 1
    return rows, starts


def nearest_members(
    rows: NDArray[np.float32], groups: Groups, pairs: Pairs, fanout: int
) -> NDArray[np.uint32]:
    """Return the `fanout` points nearest to each row among the groups it probes.

    Parameters
    ----------
    rows : float32 array, shape (m, dim + 1)
        Vectors less the origin, with a column of ones (`nearest.with_one`).
    fanout : int

    Returns
    -------
    uint32 array, shape (m, fanout)
        Nearest first, ties by the smaller id; rows that probe fewer points end in `NOTHING`.
    """
    distances = np.full((len(rows), fanout), np.inf, np.float32)
    found = np.full((len(rows), fanout), NOTHING, np.uint32)
    gathered = np.empty((_TILE_ROWS, rows.shape[1]), np.float32)
    most = max((min(part.shape[1], _TILE_MEMBERS) for part in groups.augmented), default=0)
    scores = np.empty(_TILE_ROWS * most, np.float32)
    for g in np.flatnonzero(np.diff(pairs.starts) * np.diff(groups.starts)):
        members = groups.ids[groups.starts[g] : groups.starts[g + 1]]
        probing = pairs.rows[pairs.starts[g] : pairs.starts[g + 1]]
        for first in range(0, len(probing), _TILE_ROWS):
            mine = probing[first : first + _TILE_ROWS]
            np.take(rows, mine, axis=0, out=gathered[: len(mine)], mode="clip")
            for at in range(0, len(members), _TILE_MEMBERS):
                some = members[at : at + _TILE_MEMBERS]
                tile = scores[: len(mine) * len(some)].reshape(len(mine), len(some))
                np.matmul(gathered[: len(mine)], groups.augmented[g][:, at : at + _TILE_MEMBERS], out=tile)
                _keep_nearest(tile, mine, some, distances, found)
    return found


def fill_up(rows: NDArray[np.float32], groups: Groups, found: NDArray[np.uint32]) -> None:
    """Let rows of `found` (m, fanout) that end in `NOTHING` look in all groups; for few rows."""
    short = np.flatnonzero(found[:, -1] == NOTHING)
    if len(short):
        n_groups = len(groups.augmented)
        everywhere = np.tile(np.arange(n_groups, dtype=np.uint32), (len(short), 1))
        found[short] = nearest_members(rows[short], groups, pairs_of(everywhere, n_groups), found.shape[1])


@njit(nogil=True, cache=True)
def _within(scores: Any, first: int, last: int, limit: Any) -> Any:  # pragma: no cover - compiled
    """Count the scores up to `limit`; a loop that compilers turn into vector instructions, unlike a minimum."""
    count = np.int32(0)
    for j in range(first, last):
        count += np.int32(scores[j] <= limit)
    return count


@njit(nogil=True, cache=True)
def _keep_nearest(
    scores: Any, rows: Any, ids: Any, distances: Any, found: Any
) -> None:  # pragma: no cover - compiled
    """Merge a tile of scores (m, n) into the lists of its rows, each ascending by (distance, id)."""
    fanout = found.shape[1]
    for i in range(rows.size):
        row = rows[i]
        known, names, new = distances[row], found[row], scores[i]
        for first in range(0, ids.size, _RUN):
            last = min(first + _RUN, ids.size)
            if _within(new, first, last, known[fanout - 1]) == 0:
                continue
            for j in range(first, last):
                if new[j] > known[fanout - 1] or (new[j] == known[fanout - 1] and ids[j] > names[fanout - 1]):
                    continue
                at = fanout - 1
                while at > 0 and (
                    known[at - 1] > new[j] or (known[at - 1] == new[j] and names[at - 1] > ids[j])
                ):
                    known[at], names[at] = known[at - 1], names[at - 1]
                    at -= 1
                known[at], names[at] = new[j], ids[j]
