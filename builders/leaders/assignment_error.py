"""How far an index over leaders is from brute force, measured on a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import comparable
from indexmill.builders.leaders.base import LeaderIndex
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.formats.errors import ConfigError

#: Vectors compared with all leaders at a time: 64 KiB each.
_BLOCK = 1024


@dataclass(frozen=True)
class AssignmentError:
    """An index over leaders beside brute force.

    Attributes
    ----------
    n_vectors, n_leaders, fanout : int
        Of the measurement.
    agreement : float
        Share of the vectors whose first leader is as near as the nearest.
    recall : float
        Share of the leaders found, among `fanout` a vector, that are as near as the true ones.
    excess_distance : float
        Mean distance to the first leader over the mean distance to the nearest, less one; 0 if both are 0, and 1 if
        only the latter is.
    """

    n_vectors: int
    n_leaders: int
    fanout: int
    agreement: float
    recall: float
    excess_distance: float


def assignment_error(
    index: LeaderIndex, sample: NDArray[Any], fanout: int = 1, threads: int = 1
) -> AssignmentError:
    """Compare what `index` finds with brute force; distances are computed in float64 and ties count as right.

    Parameters
    ----------
    sample : array, shape (m, dim)
        Vectors to assign. Leaders among them are their own nearest leaders and flatter the index.

    Raises
    ------
    ConfigError
        If the sample is empty, or as `LeaderIndex.nearest`.
    """
    if len(sample) == 0:
        raise ConfigError("sample: no vectors; an assignment's error is measured on some")
    found = index.nearest(sample, fanout, threads)
    rows, leaders = comparable(sample), index.leaders
    right = same = 0
    ours = best = 0.0
    for first in range(0, len(rows), _BLOCK):
        some = rows[first : first + _BLOCK]
        truth, _ = exact_neighbours(leaders, some, fanout, threads)
        true, mine = (_distances(some, leaders[ids]) for ids in (truth, found[first : first + _BLOCK]))
        right += int((mine[:, 0] <= true[:, 0]).sum())
        same += int((mine <= true[:, -1:]).sum())
        ours, best = ours + float(np.sqrt(mine[:, 0]).sum()), best + float(np.sqrt(true[:, 0]).sum())
    excess = ours / best - 1 if best > 0 else float(ours > 0)
    return AssignmentError(
        len(rows), len(leaders), fanout, right / len(rows), same / found.size, max(0.0, excess)
    )


def _distances(rows: NDArray[Any], points: NDArray[Any]) -> NDArray[np.float64]:
    """Return squared distances, (m, f), of rows (m, dim) to their points (m, f, dim)."""
    differences = points.astype(np.float64) - rows[:, None, :].astype(np.float64)
    return np.asarray(np.einsum("mfd,mfd->mf", differences, differences))
