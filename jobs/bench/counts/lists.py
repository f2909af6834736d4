"""Parts *lists*, *own-lists* and *closures*: recall of inverted lists by the number of lists that a query reads.

Part *own-lists* cuts the vectors into batches that have centroids of their own (Equation 5 of the Batch Similarity
Search paper): a query then reads its nearest lists of every batch. Part *closures* has the pages that a query reads of
short lists with copies of vectors near a border, as SPANN has them.
"""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import indexmill
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import Row, summaries
from indexmill.jobs.bench.common.dataset import read_bin, write_bin
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.counts.graphs import RECALLS, at, by_recall
from indexmill.jobs.bench.counts.sets import KS, Case, given
from indexmill.jobs.bench.programs import ours
from indexmill.reader.ivf import IvfIndex

NAME = "sift1m"
#: Lists of the record of joins, and numbers of them that a query reads.
LISTS, NPROBES = 4096, (1, 4, 32)
#: Fewer lists of a million vectors: the first have the 760 vectors that a list of a batch has in the paper.
LARGER = (1316, 512, 256)
#: Batches with lists of their own, as many as the paper cuts 50 million vectors into, and numbers of lists of each: the
#: first gives a list as many vectors as without batches, the second is the paper's number of lists, the third gives a
#: list 760 vectors, so that a query is compared with as many as in the paper.
BATCHES = 16
BATCH_LISTS = (LISTS // BATCHES, LISTS, 82)
#: Of closures: the set, vectors for each list (a fifth of the vectors are centroids, in memory, as the paper allows
#: SPANN), copies of a vector at most (SPANN's), and numbers of lists that a query reads.
CLOSED, PER_LIST, COPIES = "text40k", 5, 8
READ = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def measure(run: Run) -> dict[str, Any]:
    """Search lists of nearest centroids: as many as the record of joins has, and fewer, larger ones."""
    case = given(run, NAME)
    n_vectors = case.data.shape()[0]
    lists = min(LISTS, n_vectors // 4)
    return {
        "n_vectors": n_vectors,
        "lists": lists,
        "queries": len(case.queries),
        "nprobe": _searched(case, lists),
        "larger": {str(fewer): _searched(case, min(fewer, n_vectors // 4)) for fewer in LARGER},
    }


def _searched(case: Case, lists: int) -> dict[str, dict[str, float | None]]:
    """Return recall and the share of vectors compared by nprobe."""
    index = IvfIndex(_built(case, lists), "memory")
    counted: dict[str, dict[str, float | None]] = {}
    for nprobe in NPROBES:
        found = index.search(case.queries, KS[1], nprobe=min(nprobe, lists), threads=THREADS)
        recalls = case.recalls(found.vector_ids)
        counted[str(nprobe)] = {
            **{f"ivf_recall{k}": recalls[f"recall{k}"] for k in KS[:2]},
            "ivf_compared": float(found.counters["distances"].mean()) / case.data.shape()[0],
        }
    return counted


def _built(case: Case, lists: int, **options: Any) -> Path:
    """Build so many lists unless they are there; return the directory."""
    path = case.out / ("-".join(["lists", *map(str, (lists, *options.values()))]) + ".index")
    if not case.is_built(path):
        options |= {"lists": lists, "seed": SEED, "workers": THREADS, "force": True}
        indexmill.build(case.data.base, path, kind="ivf", **options)
    return path


def closures(run: Run) -> dict[str, Any]:
    """Count the pages that a query reads of lists with copies, by the recall of 1, 10 and 100 neighbours."""
    case = given(run, CLOSED)
    n_vectors, dim = case.data.shape()
    lists = n_vectors // PER_LIST
    path = _built(case, lists, copies=COPIES)
    index = IvfIndex(path, "mmap")
    rows: list[Row] = []
    for read in (read for read in READ if read <= lists):
        found = index.search(case.queries, KS[-1], nprobe=read, threads=THREADS)
        pages = float(found.counters["bytes_read"].mean()) / PAGE_BYTES
        rows.append({"L": read, **case.recalls(found.vector_ids), "pages_read": pages})
        if min(rows[-1][f"recall{k}"] for k in KS) >= RECALLS[-1]:
            break
    vector_bytes = n_vectors * dim * case.data.dtype().itemsize
    files = ours.manifest(path)["files"]
    return {
        "n_vectors": n_vectors,
        "queries": len(case.queries),
        "lists": lists,
        "copies": COPIES,
        "stored": sum(file["bytes"] for file in files if file["name"].startswith("batch-")) / vector_bytes,
        "to_vectors": lists * dim * 4 / vector_bytes,
        "at": by_recall(lambda recall, k: at(rows, "pages_read", recall, k)),
        "rows": summaries(rows),
    }


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
