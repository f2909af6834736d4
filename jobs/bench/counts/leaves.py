"""Parts *leaves* and *leaves-10m*: the search of eCP beside inverted lists, by the vectors that a query reads.

The leaders of eCP are random vectors. A vector lies in the leaf of the leader that a descent of a tree finds; a query
descends along b nodes of each level and reads b leaves. The paper's tree has depth 3 and is told no further: so trees
have three levels of leaders, as `LeaderTree` has by default, or two, if the leaves count as a level; and a descent for
assignment keeps one node of a level or a few. What the paper tells of the sizes of leaves says which are like its own.

Inverted lists are as many and have centroids by k-means; a query reads those of its b nearest centroids. Between both
stand leaves of the same random leaders, found without a tree, in assignment and in search: they part what a tree loses
from what random leaders lose.

A true neighbour is found if its list is read, because lists hold whole vectors; so leaves need not be written. Pages
are those of lists one after the other in one file, ids with vectors, as both policies of assignment leave them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import indexmill
from indexmill.builders.leaders.assignment_error import assignment_error
from indexmill.builders.leaders.base import ExactLeaders, LeaderIndex, draw_leaders, n_leaders
from indexmill.builders.leaders.tree import LeaderTree
from indexmill.builders.nearest.products import nearest_points
from indexmill.formats.chunks.tempfiles import member_dtype
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.ivf.lists import ListReader
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import Row, at_recalls, ratio, value_at
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import LEAF_KIB, SEED, THREADS
from indexmill.jobs.bench.counts.sets import KS, Case, generated, given

NAME = "sift1m"
#: Vectors of part *leaves-10m*.
LARGE = 10_000_000
#: Lists that a query reads, in steps of about 1.4.
READ = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256)
#: Recalls of ten neighbours at which costs are told.
RECALLS = (0.80, 0.90, 0.95)
#: Trees by name: levels of leaders, and nodes of a level that a descent for assignment keeps.
TREES = {"depth 3": (3, 1), "depth 3, 4 nodes": (3, 4), "depth 2": (2, 1)}
#: Leaders of the paper; depths, and nodes of a level, with which it is seen how often the nearest leader is found.
PAPER_LEADERS, DEPTHS, BEAMS = 111_424, (3, 2), (1, 4, 16, 64)
#: Vectors, none of them leaders, that are looked up in trees.
LOOKED_UP = 4096
#: Leaves below and above these shares of the mean are small and large, as in the paper (64 and 192 of 128 KB).
SMALL, LARGE_LEAF = 0.5, 1.5

#: Leaves without a tree, and inverted lists.
LEADERS, LISTS = "no tree", "lists"

#: Returns the b lists that each query reads, (n_queries, b).
Choose = Callable[[int], NDArray[Any]]


def measure(run: Run) -> dict[str, Any]:
    """Count on sift1m, and see how often trees of several sizes find the nearest leader."""
    case = given(run, NAME)
    base = read_bin(case.data.base)
    leaves = leaves_of(case)
    counts = sorted({leaves, min(PAPER_LEADERS, len(base) // 4)})
    return searched(case) | {"trees": {str(n): agreements(base, n) for n in counts}}


def large(run: Run) -> dict[str, Any]:
    """Count on ten million generated vectors."""
    return searched(generated(run, 10 * run.rows if run.rows else LARGE))


def leaves_of(case: Case) -> int:
    """Return the number of leaves with `LEAF_KIB` of vectors on average, at least two."""
    n_vectors, dim = case.data.shape()
    return max(2, n_leaders(n_vectors, dim * case.data.dtype().itemsize, LEAF_KIB))


def searched(case: Case) -> dict[str, Any]:
    """Return what queries find in leaves of eCP, in leaves without a tree, and in inverted lists."""
    base, leaves = np.asarray(read_bin(case.data.base)), leaves_of(case)
    leaders = base[draw_leaders(len(base), leaves, SEED)]
    exact = ExactLeaders(leaders)

    def tree(depth: int, beam: int) -> LeaderTree:
        return LeaderTree(leaders, depth=depth, beam=beam, seed=SEED, threads=THREADS)

    def descended(depth: int, beam: int, read: int) -> NDArray[Any]:
        return tree(depth, max(beam, read)).nearest(case.queries, read, THREADS)

    def found_by(index: LeaderIndex) -> NDArray[Any]:
        return index.nearest(base, 1, THREADS)[:, 0]

    centroids, lists = _lists(case, leaves)
    kinds: dict[str, tuple[NDArray[Any], Choose]] = {
        **{
            name: (found_by(tree(depth, beam)), partial(descended, depth, beam))
            for name, (depth, beam) in TREES.items()
        },
        LEADERS: (found_by(exact), lambda read: exact.nearest(case.queries, read, THREADS)),
        LISTS: (lists, lambda read: nearest_points(case.queries, centroids, read, THREADS)),
    }
    row_bytes = member_dtype(base.shape[1] * base.itemsize).itemsize
    found = {name: _read(case, *kind, len(centroids), row_bytes) for name, kind in kinds.items()}
    return {
        "n_vectors": len(base),
        "leaves": leaves,
        "lists": len(centroids),
        "leaf_kib": LEAF_KIB,
        "queries": len(case.queries),
        "kinds": found,
        "to_lists": {
            name: {cost: _to(one, found[LISTS], cost) for cost in ("vectors", "pages")}
            for name, one in found.items()
        },
    }


def _lists(case: Case, lists: int) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
    """Build inverted lists unless they are there; return their centroids, and the list of each vector."""
    path = case.out / f"leaves-{lists}.index"
    if not case.is_built(path):
        indexmill.build(case.data.base, path, kind="ivf", lists=lists, seed=SEED, workers=THREADS, force=True)
    index = IvfFiles(path)
    owner = np.empty(case.data.shape()[0], np.uint32)
    with ListReader(index) as reader:
        for number in range(index.centroids.n_lists):
            for ids in reader.ids(number):
                owner[ids] = number
    return index.centroids.centroids, owner


def _read(case: Case, owner: NDArray[Any], choose: Choose, lists: int, row_bytes: int) -> dict[str, Any]:
    """Return what queries find by the lists that they read, and the costs of a recall."""
    sizes = np.bincount(owner, minlength=lists)
    pages = pages_of(sizes, row_bytes)
    rows: list[Row] = []
    for read in (read for read in READ if read <= lists):
        chosen = choose(read)
        rows.append(
            {
                "L": read,  # what grows from row to row, as `curves` calls it
                **{f"recall{k}": held(owner, chosen, case.truth[0][:, :k]) for k in KS[:2]},
                "vectors": float(sizes[chosen].sum(axis=1).mean()),
                "pages": float(pages[chosen].sum(axis=1).mean()),
            }
        )
    costs = ("L", "vectors", "pages")
    return {
        "sizes": leaf_sizes(sizes),
        "rows": rows,
        "at": at_recalls(
            lambda recall: {cost: value_at(rows, cost, recall, f"recall{KS[1]}") for cost in costs}, RECALLS
        ),
    }


def _to(found: dict[str, Any], other: dict[str, Any], cost: str) -> dict[str, float | None]:
    """Return a cost over that of another kind, at each of `RECALLS`."""
    return {name: ratio(at[cost], other["at"][name][cost]) for name, at in found["at"].items()}


def held(owner: NDArray[Any], lists: NDArray[Any], near: NDArray[Any]) -> float:
    """Return the share of near vectors, (n_queries, k), whose list is among those of their query, (n_queries, b).

    Parameters
    ----------
    owner : integer array, shape (n_vectors,)
        List of each vector.
    lists, near : integer arrays
        Lists that each query reads, and vector ids.
    """
    return float((owner[near][:, :, None] == lists[:, None, :]).any(axis=2).mean())


def pages_of(sizes: NDArray[np.int64], row_bytes: int) -> NDArray[np.int64]:
    """Return the pages that each list touches, lists one after the other in a file of rows of so many bytes."""
    ends = np.cumsum(sizes) * row_bytes
    starts = ends - sizes * row_bytes
    return np.where(sizes > 0, (ends - 1) // PAGE_BYTES - starts // PAGE_BYTES + 1, 0)


def leaf_sizes(sizes: NDArray[np.int64]) -> dict[str, float]:
    """Return the shares of leaves that are small and large, and the largest over the mean."""
    over_mean = sizes / sizes.mean()
    return {
        "small": float((over_mean < SMALL).mean()),
        "large": float((over_mean > LARGE_LEAF).mean()),
        "largest": float(over_mean.max()),
    }


def agreements(base: Any, leaders: int) -> dict[str, dict[str, float]]:
    """Return, by the levels of a tree over random leaders and the nodes kept, how often the nearest leader is found."""
    drawn = draw_leaders(len(base), leaders, SEED)
    others = np.random.default_rng(SEED).permutation(np.setdiff1d(np.arange(len(base)), drawn))
    vectors = base[np.sort(others[:LOOKED_UP])]

    def agreement(depth: int, beam: int) -> float:
        tree = LeaderTree(base[drawn], depth=depth, beam=beam, seed=SEED, threads=THREADS)
        return assignment_error(tree, vectors, 1, THREADS).agreement

    return {str(depth): {str(beam): agreement(depth, beam) for beam in BEAMS} for depth in DEPTHS}
