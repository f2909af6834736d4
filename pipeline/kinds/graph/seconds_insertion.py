"""Seconds of inserting a vertex into a graph: a small graph grows, and what its last insertions cost is extrapolated.

An insertion is a search and a prune, and a search computes more distances the larger the graph is: as many more each
time that it doubles, or fewer each time. In memory that no cache holds, distances and single reads take longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import read_anywhere
from indexmill.builders.vamana.build import list_capacity
from indexmill.builders.vamana.graph import VamanaParameters
from indexmill.builders.vamana.insert import insert_vertices
from indexmill.pipeline.kinds.graph.memory import expected_shards
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.mill.clocks import BatchClock, Tries, fastest

#: Bytes of memory that trials scatter rows and reads over, at most.
SPREAD_BYTES = 256 << 20
#: Vertices of the first try; tries grow while the next one is expected to end in time.
_FIRST_VERTICES = 64
#: Doublings that tell whether each costs fewer distances more than the one before; a single one does not.
_DOUBLINGS = 2
#: Vertices that the search of an insertion comes to, as a multiple of L, and reads of each that nothing fetches ahead:
#: its list, and the first row of those that it names. (A reverse edge costs one read, in the list of the neighbour.)
_HOPS, _HOP_READS = 1.2, 2
#: Reads of a trial, each of a place that the one before decides.
_READS = 200_000


@dataclass(frozen=True)
class Insertions:
    """What insertions cost while a small graph grew, on one thread.

    Attributes
    ----------
    vertices : int
        Of the graph while the last ones were timed, about.
    seconds, distances : float
        What one of these took, and computed.
    more : float
        Distances more than in a graph half as large.
    decline : float
        Share of this that the next doubling costs, and of that the one after it, and so on; at most 1.
    """

    vertices: int
    seconds: float
    distances: float
    more: float = 0.0
    decline: float = 1.0

    def distances_at(self, vertices: float) -> float:
        """Return the distances of an insertion into a graph of so many vertices."""
        doublings = math.log2(max(vertices, 1) / self.vertices)
        if doublings <= 0:
            return max(self.distances + self.more * doublings, self.distances / 4)
        times = doublings
        if self.decline < 1:
            times = self.decline * (1 - self.decline**doublings) / (1 - self.decline)
        return self.distances + self.more * times

    def seconds_at(self, vertices: float, waiting: float, stalling: float) -> float:
        """Return the seconds of an insertion into a graph of so many vertices.

        Parameters
        ----------
        waiting : float
            Seconds that a distance takes longer there than in the trial, whose rows the caches hold.
        stalling : float
            Seconds that the single reads of an insertion take longer.
        """
        distances = self.distances_at(vertices)
        return distances * (self.seconds / max(self.distances, 1.0) + waiting) + stalling


def timed_insertions(
    rows: NDArray[Any], codes: NDArray[np.uint8] | None, p: Parameters, deadline: float
) -> Insertions:
    """Grow a graph of `rows` until `deadline`, or all are in it, each try as large as the graph before it."""
    neighbours = np.zeros((len(rows), list_capacity(p.max_degree)), np.uint32)
    degrees = np.zeros(len(rows), np.int32)
    vamana = VamanaParameters(p.max_degree, p.build_list_size, p.alpha, saturate=p.saturate)
    order = np.random.default_rng(p.seed).permutation(len(rows)).astype(np.uint32)
    done, seconds = 0, 0.0
    sizes, distances = [], []
    tries = Tries(deadline)
    for last in _doubling(len(rows)):
        some = order[done:last]
        clock = BatchClock()
        computed = insert_vertices(
            rows, neighbours, degrees, some, int(order[0]), vamana, codes=codes, present=done, advance=clock
        )
        sizes.append(math.sqrt(max(done, 1) * last))
        distances.append(computed / len(some))
        done, seconds = last, clock.median()
        if not tries.leave_time(growth=2):
            break
    return Insertions(int(sizes[-1]), seconds, distances[-1], *_growth(sizes, distances))


def _doubling(n: int) -> list[int]:
    sizes = [min(_FIRST_VERTICES, n)]
    while sizes[-1] < n:
        sizes.append(min(2 * sizes[-1], n))
    return sizes


def _growth(sizes: list[float], distances: list[float]) -> tuple[float, float]:
    """Return the distances that the last doubling cost, and the share of it that the next one costs."""
    more = np.maximum(np.diff(distances) / np.maximum(np.diff(np.log2(sizes)), 1e-9), 0.0)
    if len(more) == 0:
        return 0.0, 1.0
    told = len(more) > _DOUBLINGS and more[-1 - _DOUBLINGS] > 0
    decline = (more[-1] / more[-1 - _DOUBLINGS]) ** (1 / _DOUBLINGS) if told else 1.0
    return float(more[-1]), min(1.0, float(decline))


def stalling_seconds(shape: GraphShape, vertices: int, deadline: float) -> float:
    """Return by how many seconds the single reads of an insertion take longer than in a graph of `vertices`."""
    p, (_, shard) = shape.parameters, expected_shards(shape)
    if shard <= vertices:
        return 0.0
    a_vertex = shape.searched_bytes + 4 * list_capacity(p.max_degree)
    reads = _HOPS * p.build_list_size * _HOP_READS + p.max_degree
    near, far = (read_seconds(n * a_vertex, deadline) for n in (vertices, shard))
    return reads * max(0.0, far - near)


def read_seconds(n_bytes: int, deadline: float) -> float:
    """Return the seconds of a read from anywhere in about so much memory, which waits for the one before."""
    memory = np.ones(1 << min(n_bytes, SPREAD_BYTES).bit_length() - 1, np.uint8)
    return fastest(lambda: read_anywhere(memory, _READS), deadline) / _READS
