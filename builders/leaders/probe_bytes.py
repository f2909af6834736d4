"""uint8 points in groups, compared in integers: exact, and the same on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexmill.builders.nearest.panels import NO_SCORE, NOTHING, all_scores, in_panels, merge_nearest


class ByteGroups:
    """See `builders.leaders.probe.Groups`.

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
        """See `builders.leaders.probe.Groups`."""
        return len(self._sizes)

    @property
    def n_points(self) -> int:
        """See `builders.leaders.probe.Groups`."""
        return int(self._sizes.sum())

    def prepared(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """See `builders.leaders.probe.Groups`; here they are taken as they are."""
        return vectors

    def scores(self, prepared: NDArray[Any], group: int) -> NDArray[Any]:
        """See `builders.leaders.probe.Groups`; int32."""
        first, last = self._panels.starts[group : group + 2]
        offsets = self._panels.offsets[first:last]
        out = np.empty((len(prepared), offsets.size), np.int32)
        all_scores(prepared, np.arange(len(prepared)), self._panels.bytes[first:last], offsets, out)
        return out[:, : self._sizes[group]]

    def nearest(self, prepared: NDArray[Any], pairs: Any, fanout: int) -> NDArray[np.uint32]:
        """See `builders.leaders.probe.Groups`."""
        scores = np.full((len(prepared), fanout), NO_SCORE, np.int32)
        found = np.full((len(prepared), fanout), NOTHING, np.uint32)
        _probe(prepared, pairs.rows, pairs.starts, *self._panels, scores, found)
        return found


@njit(nogil=True, cache=True)
def _probe(
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
    """Merge each group's points into the lists of the rows that probe it."""
    for g in range(starts.size - 1):
        mine, first, last = rows[row_starts[g] : row_starts[g + 1]], starts[g], starts[g + 1]
        if mine.size and last > first:
            merge_nearest(
                vectors, mine, data[first:last], offsets[first:last], ids[first:last], scores, found
            )
