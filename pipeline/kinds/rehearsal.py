"""A tiny build that compiles the kernels of a large one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from indexmill.builders.lists.coded import CODED_DIM
from indexmill.builders.nearest.panels import PANEL, RANKED

#: More centroids than are compared by all their scores: another kernel finds the nearest one.
MANY_CENTROIDS = RANKED * PANEL + 1
#: Vectors of such a build: more than its centroids, and more than a leaf of the partition builder holds.
REHEARSED = MANY_CENTROIDS + 451
#: Components of its vectors, at most: enough that floats are compared by codes.
REHEARSED_DIM = CODED_DIM


@dataclass(frozen=True)
class Rehearsal:
    """A tiny build; every field chooses kernels, so that jobs which need the same kernels have the same rehearsal.

    Attributes
    ----------
    parameters : dict
        Those of a job, except that numbers are small ones.
    dtype : str
        Type of the vectors.
    changes : dict
        Fields of the shape that the memory of the large build decides.
    centroids, queries : int
        Centroids, and queries of a sample, that are given; 0 for none.
    labels : bool
        Whether there is a column of labels.
    """

    parameters: dict[str, Any]
    dtype: str
    changes: dict[str, Any] = field(default_factory=dict)
    centroids: int = 0
    queries: int = 0
    labels: bool = False


def few(centroids: int, least: int) -> int:
    """Return `least`, or `MANY_CENTROIDS` for a job with so many."""
    return MANY_CENTROIDS if centroids >= MANY_CENTROIDS else least
