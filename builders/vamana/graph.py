"""A Vamana graph in memory, and the parameters that decide its shape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.vamana.prune import PruneRule


@dataclass(frozen=True)
class VamanaParameters:
    """Parameters of a build.

    Attributes
    ----------
    max_degree : int
        R, at least 2.
    build_list_size : int
        L, candidates of the search whose visited vertices are pruned.
    alpha : float
        Slack of the prune, at least 1.
    passes : int
        Insertions of every vertex: 1, or 2 as in the paper, the first with a slack of 1.
    saturate : bool
        Whether the prune fills free places of a list.
    """

    max_degree: int
    build_list_size: int
    alpha: float
    passes: int = 1
    saturate: bool = True

    @property
    def rule(self) -> PruneRule:
        """Rule of the prune."""
        return PruneRule(self.alpha, self.saturate)

    @property
    def alphas(self) -> tuple[float, ...]:
        """Slack of each pass."""
        return (*(self.passes - 1) * (1.0,), self.alpha)


class Growing(NamedTuple):
    """A graph while it is built, with the vectors of its vertices: the arguments that all steps of a build share.

    Attributes
    ----------
    vectors : array, shape (n_vertices, dim), C-contiguous
        As `reader.kernels.squared_distances` takes them.
    neighbours : uint32 array, shape (n_vertices, at least R)
    degrees : int32 array, shape (n_vertices,)
    """

    vectors: NDArray[Any]
    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]


class Misses(NamedTuple):
    """Losses by byte codes in a build by `builders.partition`.

    Attributes
    ----------
    looked_for : int
        Neighbours of the members of leaves that were looked for exactly.
    missed : int
        Those of them that codes missed.
    leaders, leaders_missed : int
        The same of nearest leaders.
    """

    looked_for: int = 0
    missed: int = 0
    leaders: int = 0
    leaders_missed: int = 0

    @classmethod
    def total(cls, parts: Iterable[Misses]) -> Misses:
        """Return the sums of all parts."""
        return cls(*map(sum, zip(cls(), *parts, strict=True)))

    @property
    def share(self) -> float:
        """Share of the neighbours that codes missed."""
        return round(self.missed / max(self.looked_for, 1), 6)

    @property
    def leaders_share(self) -> float:
        """Share of the leaders that codes missed."""
        return round(self.leaders_missed / max(self.leaders, 1), 6)


@dataclass(frozen=True)
class Graph:
    """A directed graph on ``n`` vertices.

    Attributes
    ----------
    neighbours : uint32 array, shape (n, R)
        Row v holds ``degrees[v]`` distinct neighbours of v, nearest first (ties by id), then zeros.
    degrees : int32 array, shape (n,)
    entry : int
        Vertex from which every other one can be reached.
    edges_added : int
        Edges added to reach every vertex (`builders.vamana.connect`).
    misses : Misses, optional
        What byte codes missed, where leaves were compared by them.
    """

    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.int32]
    entry: int
    edges_added: int = 0
    misses: Misses | None = None
