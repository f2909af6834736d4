"""Part *lists*: recall of inverted lists by the number of lists that a query reads, beside the leaves of eCP.

The leaders of eCP are random vectors. Its tree assigns a vector to the leader that a descent along one node a level
finds; a query descends along as many nodes of each level as it reads leaves. Both have as many lists. A true neighbour
is found if its list is read, because lists hold whole vectors; so leaves need not be written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import indexmill
from indexmill.builders.leaders.base import draw_leaders
from indexmill.builders.leaders.tree import LeaderTree
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.counts.sets import KS, given
from indexmill.reader.ivf import IvfIndex

NAME = "sift1m"
#: Lists of the record of joins, and numbers of them that a query reads.
LISTS, NPROBES = 4096, (1, 4, 32)


def measure(run: Run) -> dict[str, Any]:
    """Search lists of nearest centroids, and leaves of a tree of leaders."""
    case = given(run, NAME)
    base = read_bin(case.data.base)
    lists = min(LISTS, len(base) // 4)
    path = case.out / f"lists-{lists}.index"
    if not case.is_built(path):
        indexmill.build(case.data.base, path, kind="ivf", lists=lists, seed=SEED, workers=THREADS, force=True)
    index = IvfIndex(path, "memory")
    leaders = np.asarray(base[draw_leaders(len(base), lists, SEED)])
    owner = LeaderTree(leaders, seed=SEED, threads=THREADS).nearest(np.asarray(base), 1, THREADS)[:, 0]
    sizes = np.bincount(owner, minlength=lists)
    counted: dict[str, dict[str, float | None]] = {}
    for nprobe in NPROBES:
        found = index.search(case.queries, KS[1], nprobe=nprobe, threads=THREADS)
        recalls = case.recalls(found.vector_ids)
        tree = LeaderTree(leaders, beam=nprobe, seed=SEED, threads=THREADS)
        leaves = tree.nearest(case.queries, nprobe, THREADS)
        counted[str(nprobe)] = {
            **{f"ivf_recall{k}": recalls[f"recall{k}"] for k in KS[:2]},
            "ivf_compared": float(found.counters["distances"].mean()) / len(base),
            **{f"ecp_recall{k}": held(owner, leaves, case.truth[0][:, :k]) for k in KS[:2]},
            "ecp_compared": float(sizes[leaves].sum(axis=1).mean()) / len(base),
        }
    return {"n_vectors": len(base), "lists": lists, "queries": len(case.queries), "nprobe": counted}


def held(owner: NDArray[Any], leaves: NDArray[Any], near: NDArray[Any]) -> float:
    """Return the share of near vectors, (n_queries, k), whose leaf is among those of their query, (n_queries, b).

    Parameters
    ----------
    owner : integer array, shape (n_vectors,)
        Leaf of each vector.
    leaves, near : integer arrays
        Leaves that each query reads, and vector ids.
    """
    return float((owner[near][:, :, None] == leaves[:, None, :]).any(axis=2).mean())
