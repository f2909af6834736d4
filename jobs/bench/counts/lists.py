"""Parts *lists* and *own-lists*: recall of inverted lists by the number of lists that a query reads.

Part *own-lists* cuts the vectors into batches that have centroids of their own (Equation 5 of the Batch Similarity
Search paper): a query then reads its nearest lists of every batch.
"""

from __future__ import annotations

import shutil
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import indexmill
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import read_bin, write_bin
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.counts.sets import KS, Case, given
from indexmill.reader.ivf import IvfIndex

NAME = "sift1m"
#: Lists of the record of joins, and numbers of them that a query reads.
LISTS, NPROBES = 4096, (1, 4, 32)
#: Batches with lists of their own, as many as the paper cuts 50 million vectors into, and numbers of lists of each: the
#: first gives a list as many vectors as without batches, the second is the paper's number of lists.
BATCHES = 16
BATCH_LISTS = (LISTS // BATCHES, LISTS)


def measure(run: Run) -> dict[str, Any]:
    """Search lists of nearest centroids."""
    case = given(run, NAME)
    n_vectors = case.data.shape()[0]
    lists = min(LISTS, n_vectors // 4)
    path = case.out / f"lists-{lists}.index"
    if not case.is_built(path):
        indexmill.build(case.data.base, path, kind="ivf", lists=lists, seed=SEED, workers=THREADS, force=True)
    index = IvfIndex(path, "memory")
    counted: dict[str, dict[str, float | None]] = {}
    for nprobe in NPROBES:
        found = index.search(case.queries, KS[1], nprobe=nprobe, threads=THREADS)
        recalls = case.recalls(found.vector_ids)
        counted[str(nprobe)] = {
            **{f"ivf_recall{k}": recalls[f"recall{k}"] for k in KS[:2]},
            "ivf_compared": float(found.counters["distances"].mean()) / n_vectors,
        }
    return {"n_vectors": n_vectors, "lists": lists, "queries": len(case.queries), "nprobe": counted}


def own_lists(run: Run) -> dict[str, Any]:
    """Search batches with lists of their own, and take the nearest of what is found in all."""
    case = given(run, NAME)
    n_vectors = case.data.shape()[0]
    found = {str(lists): _in_batches(case, lists) for lists in BATCH_LISTS}
    return {"n_vectors": n_vectors, "batches": BATCHES, "queries": len(case.queries), "lists": found}


def _in_batches(case: Case, lists: int) -> dict[str, Any]:
    """Return recall and the share of vectors compared by nprobe, with so many lists a batch."""
    base = read_bin(case.data.base)
    edges = [len(base) * i // BATCHES for i in range(BATCHES + 1)]
    ids: dict[int, list[NDArray[Any]]] = {nprobe: [] for nprobe in NPROBES}
    scores: dict[int, list[NDArray[Any]]] = {nprobe: [] for nprobe in NPROBES}
    compared = dict.fromkeys(NPROBES, 0.0)
    rows, path = case.out / f"batch{case.data.base.suffix}", case.out / "batch.index"
    for first, last in pairwise(edges):
        write_bin(rows, base[first:last])
        made = min(lists, (last - first) // 4)
        indexmill.build(rows, path, kind="ivf", lists=made, seed=SEED, workers=THREADS, force=True)
        index = IvfIndex(path, "memory")
        for nprobe in NPROBES:
            found = index.search(case.queries, KS[1], nprobe=min(nprobe, made), threads=THREADS)
            ids[nprobe].append(np.where(found.vector_ids < 0, -1, found.vector_ids + first))
            scores[nprobe].append(np.nan_to_num(found.scores, nan=np.inf))
            compared[nprobe] += float(found.counters["distances"].mean())
    rows.unlink()
    shutil.rmtree(path)
    return {
        str(nprobe): _recalled(case, ids[nprobe], scores[nprobe]) | {"compared": compared[nprobe] / len(base)}
        for nprobe in NPROBES
    }


def _recalled(case: Case, ids: list[NDArray[Any]], scores: list[NDArray[Any]]) -> dict[str, float | None]:
    """Return recalls of the nearest of what batches found, each (n_queries, k)."""
    order = np.argsort(np.concatenate(scores, axis=1), axis=1, kind="stable")[:, : KS[1]]
    recalls = case.recalls(np.take_along_axis(np.concatenate(ids, axis=1), order, axis=1))
    return {f"recall{k}": recalls[f"recall{k}"] for k in KS[:2]}
