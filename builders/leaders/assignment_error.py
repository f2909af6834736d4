"""Error of an index over leaders against brute force, measured on a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import comparable
from indexmill.builders.leaders.base import LeaderIndex
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.formats.errors import ConfigError

#: Vectors compared with all leaders at a time.
_BLOCK = 1024


@dataclass(frozen=True)
class AssignmentError:
    """Comparison of an index over leaders with brute force.

    Attributes
    ----------
    n_vectors, n_leaders, fanout : int
        Size of the sample, number of leaders, and leaders searched for a vector.
    agreement : float
        Share of the vectors whose first leader is as near as their nearest one.
    recall : float
        Share of the found leaders that are as near as the true `fanout` nearest ones.
    excess_distance : float
        Mean distance to the first leader divided by the mean distance to the nearest, minus one; 0 if both means are
        0, and 1 if only the latter is.
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
    """Compare the answers of `index` with brute force; distances are float64, and ties count as correct.

    Parameters
    ----------
    sample : array, shape (m, dim)
        Vectors to assign. Leaders among them would be their own nearest leaders and improve the result.

    Raises
    ------
    ConfigError
        If the sample is empty, or as `LeaderIndex.nearest`.
    """
    if len(sample) == 0:
        raise ConfigError("sample: no vectors; an assignment's error is measured on some")
    found = index.nearest(sample, fanout, threads)
    rows, leaders = comparable(sample), index.leaders
    agreeing = recalled = 0
    sum_found = sum_true = 0.0
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK]
        truth, _ = exact_neighbours(leaders, block, fanout, threads)
        true, ours = (_distances(block, leaders[ids]) for ids in (truth, found[first : first + _BLOCK]))
        agreeing += int((ours[:, 0] <= true[:, 0]).sum())
        recalled += int((ours <= true[:, -1:]).sum())
        sum_found += float(np.sqrt(ours[:, 0]).sum())
        sum_true += float(np.sqrt(true[:, 0]).sum())
    excess = sum_found / sum_true - 1 if sum_true > 0 else float(sum_found > 0)
    return AssignmentError(
        len(rows), len(leaders), fanout, agreeing / len(rows), recalled / found.size, max(0.0, excess)
    )


def _distances(rows: NDArray[Any], points: NDArray[Any]) -> NDArray[np.float64]:
    """Return squared distances, (m, f), from rows (m, dim) to their points (m, f, dim)."""
    differences = points.astype(np.float64) - rows[:, None, :].astype(np.float64)
    return np.asarray(np.einsum("mfd,mfd->mf", differences, differences))
