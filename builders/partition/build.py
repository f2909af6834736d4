"""Partition-based graph construction (PiPNN, arXiv 2602.21247): dense products in small overlapping sets, no searches.

Vectors are carved into overlapping leaves. In each leaf, all pairs are compared to find the nearest neighbours of every
member. The neighbours of a vertex from all its leaves are pruned to its list. Then reverse edges are added, and lists
are pruned again.

Deviations from the paper:

- No reservoirs (HashPrune). Each copy of a vertex keeps the few ids found in its leaf, so the prune sees all of them in
  the order of their exact distances, and the result does not depend on an order of arrival. With reservoirs (buckets by
  the signs of 12 hyperplanes, nearest kept), searches of sift1m's graph computed 1 to 2% more distances at R = 32, and
  equally many at R = 64 without saturation.
- Of equal vectors only the first is compared (see `builders.partition.equals`).
- Edges between distant clusters are added at the end (see `builders.partition.links`).
- A last step links vertices that the entry cannot reach (see `builders.vamana.connect`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import as_bits
from indexmill.builders.gpu import Gpu
from indexmill.builders.partition.carve import carve
from indexmill.builders.partition.choose import Copies, Lists, add_reversed
from indexmill.builders.partition.equals import EQUALS_BYTES, equal_rows, join_equals, repeated
from indexmill.builders.partition.gpu import leaf_lists_on
from indexmill.builders.partition.leaf_lists import leaf_lists
from indexmill.builders.partition.links import link_bytes, link_clusters
from indexmill.builders.vamana.connect import connect_unreachable
from indexmill.builders.vamana.graph import Graph, Misses, VamanaParameters

#: Steps of a build, in order: leaves, neighbours within leaves, lists of the graph.
Step = Literal["carve", "compare", "choose"]
#: Leaders that a vector goes to on each level.
Fanouts: TypeAlias = tuple[int, int]
#: Leaders that a vector goes to on the first and on the second level, unless a caller asks for others.
FANOUTS: Fanouts = (10, 2)
#: Leaves of a vector then, except in joined leaves and small sets.
COPIES = math.prod(FANOUTS)
#: Candidates of a vertex before its list is chosen, as a multiple of R.
CANDIDATES = 2
#: R divided by the neighbours of a vertex found in each leaf, with and without saturation: with it, dropped candidates
#: fill the list.
_SATURATED_SHARE, _SHARE = 6, 5
#: Rows of cells that all threads gather at a time, with their products.
_GATHERED_BYTES = 32 << 20


def neighbours_a_leaf(max_degree: int, copies: float, saturate: bool = True) -> int:
    """Return the neighbours of a vertex found in each leaf: more if a vertex is in few leaves, as in a small set."""
    usual = max(2, -(-max_degree // (_SATURATED_SHARE if saturate else _SHARE)))
    return max(usual, int(usual * COPIES / copies))


def first_degree(max_degree: int, saturate: bool) -> int:
    """Return the most neighbours that a vertex chooses itself; reverse edges fill more of its list.

    With saturation R, as every place is used. Without, 9 R / 16: full lists have no room for reverse edges, and those
    of long vectors are full, since such vectors lie at similar distances. Lists of R = 64 cut so made searches at
    recall@10 0.95 and 0.99 compute 4% fewer distances among 200,000 sentences (768 floats), and about 1% more among
    SIFT descriptors, which lose 5% (R / 2) to 12% (7 R / 16) at 0.99 with a smaller share.
    """
    return max_degree if saturate else -(-9 * max_degree // 16)


def partitioned_bytes(
    n: int, row_bytes: int, max_degree: int, saturate: bool = True, fanouts: Fanouts = FANOUTS
) -> int:
    """Return the peak memory of a build from `n` rows of `row_bytes` bytes, including the rows."""
    copies = math.prod(fanouts)
    lists = 4 * copies * neighbours_a_leaf(max_degree, copies, saturate)
    comparing = 8 * copies + lists + 12
    choosing = max(lists, 8 * max_degree) + 28
    adding = 16 * max_degree + 28
    linking = 4 * max_degree + 4 + row_bytes // 8 + -(-link_bytes(n) // n)
    carving = n * (8 * copies + 24) + min(_GATHERED_BYTES, 8 * n * row_bytes)
    making = max(carving, n * max(comparing, choosing, adding)) + EQUALS_BYTES * n
    return n * row_bytes + max(making, n * linking)


def build_partitioned(
    vectors: NDArray[Any],
    entry: int,
    parameters: VamanaParameters,
    *,
    fanouts: Fanouts = FANOUTS,
    seed: int,
    threads: int = 1,
    gpu: Gpu | None = None,
    advance: Callable[[int], None] = lambda vertices: None,
    ended: Callable[[Step, int], None] = lambda step, copies: None,
) -> Graph:
    """Build a graph of the quality of Vamana's, without searches.

    Memory: `partitioned_bytes`, mostly 8 bytes and 4 a neighbour for each copy of a vertex. The number of copies is the
    product of `fanouts`.

    Parameters
    ----------
    vectors : uint8, float16 or float32 array, shape (n_vectors, dim), C-contiguous
    entry : int
        Vertex where searches start: the medoid.
    parameters : VamanaParameters
        `passes` is ignored, and `build_list_size` is used only to link unreachable vertices.
    fanouts : (int, int)
        Leaders that a vector goes to on each level. Fewer make a build faster, and the graph worse.
    seed : int
        Decides the leaders, and the vertices that link clusters.
    gpu : Gpu, optional
        Compares vectors with leaders and with each other; the processor still chooses the lists. The graph of uint8
        vectors is the same, bit for bit.
    advance : callable
        Called with numbers of finished vertices: half when lists are chosen, half when reverse edges are added.
    ended : callable
        Called at the end of each step with its name and the number of copies of vectors in all leaves.

    Returns
    -------
    Graph
        The same for every number of threads.
    """
    n, r, rule = len(vectors), parameters.max_degree, parameters.rule
    firsts = equal_rows(vectors, threads)
    leaves = carve(vectors, fanouts, seed=seed, threads=threads, gpu=gpu, left_out=repeated(firsts))
    n_copies = len(leaves.members)
    ended("carve", n_copies)
    copies, most = Copies(leaves.members, n), neighbours_a_leaf(r, leaves.copies, rule.saturate)
    misses: Misses | None
    if gpu is None:
        found, misses = leaf_lists(vectors, leaves, most, copies.rows, threads)
        misses = Misses.total([misses, leaves.misses])
    else:
        found, misses = leaf_lists_on(gpu, vectors, leaves, most, copies.rows), None
    del leaves, copies.rows  # frees memory for the graph
    ended("compare", n_copies)
    order, rows = copies.order, as_bits(vectors)
    lists = Lists.empty(len(order), r)
    degree = first_degree(r, rule.saturate)
    for done in copies.choose_all(rows, found, CANDIDATES * r, degree, rule, lists, threads):
        advance(done - done // 2)
    del copies, found
    for done in add_reversed(rows, order, rule, lists, threads):
        advance(done // 2)
    neighbours, degrees = np.zeros((n, r), np.uint32), np.zeros(n, np.int32)
    neighbours[order], degrees[order] = lists.ids, lists.degrees
    del lists
    link_clusters(
        vectors, firsts, neighbours, degrees, entry, rule, vectors.__getitem__, seed=seed, threads=threads
    )
    join_equals(vectors, firsts, neighbours, degrees, rule)
    advance(n - len(order))
    added = connect_unreachable(vectors, neighbours, degrees, entry, parameters.build_list_size)
    ended("choose", n_copies)
    return Graph(neighbours, degrees, entry, added, misses)
