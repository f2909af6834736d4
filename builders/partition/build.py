"""Partition-based construction (PiPNN, arXiv 2602.21247): dense products in small overlapping sets, no searches.

Vectors are carved into overlapping leaves; in each, the nearest others of every member are found by comparing all
pairs. What a vertex met in all of its leaves is pruned to its list; edges are then added the other way, and lists
pruned again.

Deviations from the paper: no reservoirs (HashPrune). What each copy of a vertex found in its leaf is kept, a few ids
each, so that the prune sees all of them in the order of their exact distances; nor does the result depend on an order
of arrival. With buckets of 12 hyperplanes' signs, nearest kept, searches of sift1m's graph took 1 to 2% more distances
at R = 32, and as many at R = 64 without saturation. Vertices that the entry cannot reach are linked in the end, see
`builders.vamana.connect`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.gpu import Gpu
from indexmill.builders.partition.carve import LEAF_MEAN, carve
from indexmill.builders.partition.choose import Copies, add_reversed
from indexmill.builders.partition.gpu import leaf_lists_on
from indexmill.builders.partition.leaf_lists import leaf_lists
from indexmill.builders.vamana.build import sort_lists
from indexmill.builders.vamana.connect import connect_unreachable
from indexmill.builders.vamana.graph import Graph, VamanaParameters

#: The steps of a build, in their order: leaves, their lists, and lists of the graph.
Step = Literal["carve", "compare", "choose"]
#: Leaders that a vector goes to on the first level and on the second one.
FANOUTS = (10, 2)
#: Leaves that it is in, but for joined ones and small sets.
COPIES = math.prod(FANOUTS)
#: Candidates of a vertex before its list is chosen, in lists.
CANDIDATES = 2
#: A list has so many times the neighbours that a leaf contributes: what is dropped fills the rest, or nothing does.
_SATURATED_SHARE, _SHARE = 6, 8
#: Copies of a cell that threads hold together, with their products, at most.
_CELLS = 8


def neighbours_a_leaf(max_degree: int, copies: float = COPIES, saturate: bool = True) -> int:
    """Return how many neighbours of a vertex each of its leaves finds: more where it is in few, as in a small set."""
    usual = max(2, -(-max_degree // (_SATURATED_SHARE if saturate else _SHARE)))
    return max(usual, int(usual * COPIES / copies))


def partitioned_bytes(n: int, row_bytes: int, max_degree: int, saturate: bool = True) -> int:
    """Return the memory that building a graph of `n` rows of so many bytes takes at most, the rows included."""
    cell = row_bytes * min(n, FANOUTS[0] * math.isqrt(n * LEAF_MEAN // COPIES))  # of the first level
    lists = 4 * COPIES * neighbours_a_leaf(max_degree, saturate=saturate)
    comparing = 8 * COPIES + lists + 24
    choosing = lists + 4 * max_degree + 28
    adding = 8 * max_degree + 28
    return n * (row_bytes + max(comparing, choosing, adding)) + _CELLS * cell


def build_partitioned(
    vectors: NDArray[Any],
    entry: int,
    parameters: VamanaParameters,
    *,
    seed: int,
    threads: int = 1,
    gpu: Gpu | None = None,
    advance: Callable[[int], None] = lambda vertices: None,
    ended: Callable[[Step, int], None] = lambda step, copies: None,
) -> Graph:
    """Build a graph about as good as Vamana's, without searches.

    Memory: `partitioned_bytes`, most of it 8 bytes and 4 a neighbour for each of a vertex's copies, as many as
    `FANOUTS` multiply to.

    Parameters
    ----------
    vectors : uint8 or float32 array, shape (n_vectors, dim), C-contiguous
    entry : int
        Where searches start: the medoid.
    parameters : VamanaParameters
        `build_list_size` and `passes` are of no use here, but for linking what is unreachable.
    seed : int
        Decides the leaders.
    gpu : Gpu, optional
        Where vectors are compared with leaders and with each other; lists are chosen here all the same. The graph of
        uint8 vectors is then the same, bit for bit.
    advance : callable
        Told the number of vertices that were finished: half when their lists are chosen, half when edges are added.
    ended : callable
        Told the name of every step when it has ended, and how many copies of vectors all leaves have.

    Returns
    -------
    Graph
        The same for every number of threads.
    """
    n, r, rule = len(vectors), parameters.max_degree, parameters.rule
    leaves = carve(vectors, FANOUTS, seed=seed, threads=threads, gpu=gpu)
    n_copies = len(leaves.members)
    ended("carve", n_copies)
    copies, found = Copies(leaves.members, n), neighbours_a_leaf(r, leaves.copies, rule.saturate)
    if gpu is None:
        lists = leaf_lists(vectors, leaves, found, copies.rows, threads)
    else:
        lists = leaf_lists_on(gpu, vectors, leaves, found, copies.rows)
    del leaves, copies.rows  # before the graph takes their place
    ended("compare", n_copies)
    order = copies.order
    neighbours, degrees = np.zeros((n, r), np.uint32), np.zeros(n, np.int32)
    for done in copies.choose_all(vectors, lists, CANDIDATES * r, rule, neighbours, degrees, threads):
        advance(done - done // 2)
    del copies, lists
    for done in add_reversed(vectors, order, rule, neighbours, degrees, threads):
        advance(done // 2)
    sort_lists(vectors, neighbours, degrees, threads)
    added = connect_unreachable(vectors, neighbours, degrees, entry, parameters.build_list_size)
    ended("choose", n_copies)
    return Graph(neighbours, degrees, entry, added)
