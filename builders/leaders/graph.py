"""A Vamana graph over leaders, searched greedily."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import comparable
from indexmill.builders.leaders.base import checked
from indexmill.builders.vamana.build import build_vamana
from indexmill.builders.vamana.entries import medoid
from indexmill.builders.vamana.graph import VamanaParameters
from indexmill.builders.vamana.greedy import search_rows
from indexmill.reader.threads import run_blocks

#: Like the navigation graph's, with less slack: there are few vertices, and short lists make short searches.
LEADER_VAMANA = VamanaParameters(max_degree=32, build_list_size=64, alpha=1.1)
#: Candidates that a search keeps.
DEFAULT_LIST_SIZE = 32
#: Vectors of a task.
_BLOCK = 4096


class LeaderGraph:
    """Index over leaders that searches a graph greedily.

    Parameters
    ----------
    leaders : array, shape (n_leaders, dim)
        uint8 leaders stay uint8: distances are exact, and a cache holds four times as many.
    list_size : int
        L, candidates that a search keeps; at least the fanout.
    seed : int
    threads : int
        Does not change the result.

    Notes
    -----
    Memory: the leaders and 132 bytes a leader for the graph, 300 bytes during the build. Each thread holds less than
    1 MiB.
    """

    def __init__(
        self, leaders: NDArray[Any], *, list_size: int = DEFAULT_LIST_SIZE, seed: int, threads: int = 1
    ) -> None:
        self.leaders, self.list_size = comparable(leaders), list_size
        entry = medoid(self.leaders, self.leaders.mean(axis=0, dtype=np.float64))
        self.graph = build_vamana(self.leaders, entry, LEADER_VAMANA, seed=seed, threads=threads)

    def nearest(self, vectors: NDArray[Any], fanout: int = 1, threads: int = 1) -> NDArray[np.uint32]:
        """See `builders.leaders.base.LeaderIndex`."""
        rows = checked(vectors, self.leaders, fanout)
        found = np.empty((len(rows), fanout), np.uint32)
        graph, list_size = self.graph, max(self.list_size, fanout)

        def block(first: int, last: int) -> None:
            search_rows(
                rows[first:last], self.leaders, graph.neighbours, graph.degrees, graph.entry, list_size,
                found[first:last],
            )  # fmt: skip

        run_blocks(block, len(rows), _BLOCK, threads)
        return found
