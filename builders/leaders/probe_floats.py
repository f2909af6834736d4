"""float32 points in groups, compared by matrix products: a product costs a tenth of as many single distances."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.nearest.panels import NOTHING
from indexmill.builders.nearest.products import augment, keep_nearest, with_one

#: Rows of one product: with a group of a few hundred members they stay in a core's own cache.
_TILE_ROWS = 1024
#: Members of one product at most, for the same reason and to bound memory.
_TILE_MEMBERS = 1024


class FloatGroups:
    """See `builders.leaders.probe.Groups`.

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
        """See `builders.leaders.probe.Groups`."""
        return len(self._augmented)

    @property
    def n_points(self) -> int:
        """See `builders.leaders.probe.Groups`."""
        return len(self._ids)

    def prepared(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """See `builders.leaders.probe.Groups`; float32 (m, dim + 1), less the origin and with a column of ones."""
        return with_one(vectors - self._origin)

    def scores(self, prepared: NDArray[Any], group: int) -> NDArray[Any]:
        """See `builders.leaders.probe.Groups`; float32."""
        scores: NDArray[np.float32] = prepared @ self._augmented[group]
        return scores

    def nearest(self, prepared: NDArray[Any], pairs: Any, fanout: int) -> NDArray[np.uint32]:
        """See `builders.leaders.probe.Groups`."""
        distances = np.full((len(prepared), fanout), np.inf, np.float32)
        found = np.full((len(prepared), fanout), NOTHING, np.uint32)
        gathered = np.empty((_TILE_ROWS, prepared.shape[1]), np.float32)
        most = max((min(part.shape[1], _TILE_MEMBERS) for part in self._augmented), default=0)
        scores = np.empty(_TILE_ROWS * most, np.float32)
        for g in np.flatnonzero(np.diff(pairs.starts) * np.diff(self._starts)):
            members = self._ids[self._starts[g] : self._starts[g + 1]]
            probing = pairs.rows[pairs.starts[g] : pairs.starts[g + 1]]
            for first in range(0, len(probing), _TILE_ROWS):
                mine = probing[first : first + _TILE_ROWS]
                np.take(prepared, mine, axis=0, out=gathered[: len(mine)], mode="clip")
                for at in range(0, len(members), _TILE_MEMBERS):
                    some = members[at : at + _TILE_MEMBERS]
                    tile = scores[: len(mine) * len(some)].reshape(len(mine), len(some))
                    points = self._augmented[g][:, at : at + _TILE_MEMBERS]
                    np.matmul(gathered[: len(mine)], points, out=tile)
                    keep_nearest(tile, mine, some, distances, found)
        return found
