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

#: As the navigation graph's, with less slack: vertices are few, and short lists make short searches.
LEADER_VAMANA = VamanaParameters(max_degree=32, build_list_size=64, alpha=1.1)
#: Candidates a search keeps.
DEFAULT_LIST_SIZE = 32
#: Vectors a thread takes at a time.
_BLOCK = 4096


class LeaderGraph:
    """A graph over leaders.

    Parameters
    ----------
    leaders : array, shape (n_leaders, dim)
        uint8 leaders stay uint8: distances are exact, and four times as many fit a cache.
    list_size : int
        L, candidates a search keeps; a larger fanout raises it.
    seed : int
    threads : int
        Does not reach the result.

    Notes
    -----
    Memory: the leaders, and 132 bytes each for the graph; while it is built 300 bytes each. A thread at work holds
    less than 1 MiB.
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
