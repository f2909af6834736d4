"""Leaders in a tree of any depth, as in eCP.

The lowest level holds all leaders. Each higher level is a random sample of the level below, and every point belongs to
its nearest point one level up. Levels shrink by the same factor, ``n_leaders ** (1 / depth)``. A search keeps the best
few nodes of each level; how many eCP keeps, its paper does not tell. Deviation: a block of vectors descends together,
level by level, so that many are compared at once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import comparable
from indexmill.builders.leaders.base import ExactLeaders, checked
from indexmill.builders.leaders.group_search import SEARCHED_ROWS, fill_up, make_groups
from indexmill.builders.nearest.pairs import pairs_of
from indexmill.builders.nearest.products import origin_of
from indexmill.builders.streams import LEADER_TREE
from indexmill.formats.errors import ConfigError
from indexmill.reader.threads import map_blocks

#: Depth in the eCP paper.
ECP_DEPTH = 3


class LeaderTree:
    """Index over leaders that searches a tree.

    Parameters
    ----------
    leaders : array, shape (n_leaders, dim)
    depth : int
        Number of levels; with one level, every leader is compared.
    beam : int
        Nodes of each level whose children are compared, at least 1.
    seed : int
        Decides the upper levels.
    threads : int
        Does not change the result.

    Raises
    ------
    ConfigError
        If depth or beam is below 1.

    Notes
    -----
    Memory: the leaders twice, and the upper levels. Each thread holds its 8,192 vectors (if float32), 12 bytes a node
    that is searched, and 8 MiB.
    """

    def __init__(
        self, leaders: NDArray[Any], *, depth: int = ECP_DEPTH, beam: int = 1, seed: int, threads: int = 1
    ) -> None:
        if depth < 1 or beam < 1:
            raise ConfigError(f"leader tree: expected depth and beam of at least 1, got {depth} and {beam}")
        self.leaders, self.beam = comparable(leaders), beam
        origin = origin_of(self.leaders, self.leaders.dtype.kind == "u")
        levels = sample_levels(len(leaders), depth, seed)
        points = self.leaders[levels[0]]
        self._levels = [make_groups(points, np.zeros(len(points), np.uint32), 1, origin)]
        for above, below in pairwise(levels):
            points = self.leaders[below]
            parents = ExactLeaders(self.leaders[above]).nearest(points, 1, threads)[:, 0]
            self._levels.append(make_groups(points, parents, len(above), origin))

    def nearest(self, vectors: NDArray[Any], fanout: int = 1, threads: int = 1) -> NDArray[np.uint32]:
        """See `builders.leaders.base.LeaderIndex`."""
        rows = checked(vectors, self.leaders, fanout)

        def block(first: int, last: int) -> NDArray[np.uint32]:
            prepared = self._levels[0].prepared(rows[first:last])
            found = np.zeros((last - first, 1), np.uint32)
            for i, level in enumerate(self._levels):
                lowest = i + 1 == len(self._levels)
                keep = fanout if lowest else min(self.beam, level.n_points)
                found = level.nearest(prepared, pairs_of(found, level.n_groups), keep)
            fill_up(prepared, self._levels[-1], found)
            return found

        parts = list(map_blocks(block, len(rows), SEARCHED_ROWS, threads))
        return np.concatenate(parts) if parts else np.empty((0, fanout), np.uint32)


def sample_levels(n_leaders: int, depth: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the leaders of each level, ascending, from the top level to the one with all leaders."""
    levels = [np.arange(n_leaders)]
    rng = np.random.default_rng([seed, LEADER_TREE])
    for level in range(depth - 1, 0, -1):
        size = min(max(1, round(n_leaders ** (level / depth))), len(levels[0]))
        levels.insert(0, np.sort(rng.choice(levels[0], size, replace=False)))
    return levels
