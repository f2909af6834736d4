"""Phases of a search, reads of pages that it read before, and hops that its entry saves.

* Figure 2 of DiskANN++: reads on the way to a query's neighbourhood, and within it. A search is there from the hop on
  that measures the first of the query's 100 nearest vectors; the paper draws a circle, and tells no radius.
* Figure 4: reads of pages that the same query read before, which a cache of its pages would answer.
* Figure 13: hops that an entry near the query saves; part *hops-saved* has its right side, the queries by these hops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.stats import spearmanr

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import Row
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.counts.graphs import RECALLS, Graph, size_at, sweep
from indexmill.jobs.bench.counts.sets import given

NAME = "text40k"
#: Searches whose reads are split: each entry by each policy, and beam search of the mapped order.
SPLIT = ("-", "A", "B", "BC", "ABC")
#: Recall@100 of the paper's figure of phases, and of its tables.
SPLIT_RECALL, TABLE_RECALL = RECALLS[-1], 0.97
#: Queries whose reads are traced.
TRACED = 200
#: Searches that differ in their entry alone.
ENTRIES = {"beam": ("-", "A"), "page": ("BC", "ABC")}
#: Queries nearest to the medoid, and as many farthest from it.
_SHARE = 4


class Split(NamedTuple):
    """Reads of each query; shape (n_queries,).

    Attributes
    ----------
    approach : int64 array
        Before the hop that measures the first near vector.
    total : int64 array
    again : int64 array
        Of pages that the same query read before.
    """

    approach: NDArray[np.int64]
    total: NDArray[np.int64]
    again: NDArray[np.int64]


def split(trace: Any, near: NDArray[np.bool_]) -> Split:
    """Split the reads of a trace.

    Parameters
    ----------
    trace : pyarrow.Table
        Of `SearchResult`.
    near : bool array, shape (n_queries, n_slots)
        The slots near each query.
    """
    n_queries = len(near)
    measured = trace.filter(pc.equal(trace["kind"], "measure"))
    query, slot, hop = (measured[name].to_numpy() for name in ("query", "vertex", "hop"))
    first = np.full(n_queries, np.iinfo(np.int64).max)
    is_near = near[query, slot]
    np.minimum.at(first, query[is_near], hop[is_near].astype(np.int64))
    reads = trace.filter(pc.equal(trace["kind"], "read"))
    query, page, hop = (reads[name].to_numpy() for name in ("query", "page", "hop"))
    once = np.unique(np.column_stack([query.astype(np.int64), page.astype(np.int64)]), axis=0)[:, 0]

    def count(some: Any) -> NDArray[np.int64]:
        return np.bincount(some, minlength=n_queries)

    return Split(count(query[hop < first[query]]), count(query), count(query) - count(once))


def phases(graph: Graph, swept: Mapping[str, list[Row]]) -> dict[str, Any]:
    """Return mean reads of both phases and the share made again, at recall@100 0.99 or with the longest list."""
    ids = graph.case.truth[0][:TRACED]
    found = {}
    for name in SPLIT:
        size = size_at(swept[name], SPLIT_RECALL)
        result = graph.search(name, size, n_queries=TRACED, trace=True)
        slots = np.argsort(graph.ids_of(name))
        near = np.zeros((len(ids), len(slots)), np.bool_)
        near[np.arange(len(ids))[:, None], slots[ids]] = True
        reads = split(result.trace, near)
        found[name] = {
            "L": size,
            "approach": float(reads.approach.mean()),
            "refine": float((reads.total - reads.approach).mean()),
            "again": float(reads.again.sum() / reads.total.sum()),
        }
    return {"queries": len(ids), "searches": found}


def far_queries(graph: Graph, swept: Mapping[str, list[Row]]) -> dict[str, Any]:
    """Return the hops that the nearest centroid's vertex saves over the medoid, by the distance of a query from it.

    Both searches have the list size at which the one from the medoid has recall@100 0.97.
    """
    medoid = np.asarray(read_bin(graph.case.data.base)[graph.medoid], np.float64)
    distances = np.linalg.norm(graph.case.queries.astype(np.float64) - medoid, axis=1)
    found = {}
    for policy, (static, sensitive) in ENTRIES.items():
        size = size_at(swept[static], TABLE_RECALL)
        hops = [_hops(graph, name, size) for name in (static, sensitive)]
        found[policy] = {
            "L": size,
            "hops": float(hops[0].mean()),
            **saved_by_distance(hops[0] - hops[1], distances),
        }
    return {"share": 1 / _SHARE, "policies": found}


def hops_saved(run: Run) -> dict[str, Any]:
    """Return how many queries save how many hops by the nearest centroid's vertex, with beam search of the input order.

    As in `far_queries`; ``counts`` has the queries by hops, fewest hops first, those that an entry costs negative.
    """
    graph = Graph(given(run, NAME))
    static, sensitive = ENTRIES["beam"]
    size = size_at(sweep(graph, static), TABLE_RECALL)
    saved = _hops(graph, static, size) - _hops(graph, sensitive, size)
    return {
        "n_vectors": len(graph.vector_ids),
        "queries": len(saved),
        "L": size,
        "saved": float(saved.mean()),
        "counts": queries_by_hops(saved),
    }


def queries_by_hops(saved: NDArray[np.float64]) -> dict[str, int]:
    """Return the number of queries that save each number of hops, whole numbers, fewest hops first."""
    hops, counts = np.unique(saved.astype(np.int64), return_counts=True)
    return {str(n): int(count) for n, count in zip(hops, counts, strict=True)}


def _hops(graph: Graph, components: str, size: int) -> NDArray[np.float64]:
    return graph.search(components, size).counters["hops"].astype(np.float64)


def saved_by_distance(saved: NDArray[np.float64], distances: NDArray[np.float64]) -> dict[str, float]:
    """Return mean hops that an entry saves: all queries, and the quarters nearest to and farthest from the medoid.

    Parameters
    ----------
    saved, distances : float64 arrays, shape (n_queries,)
        Hops saved, and the distance from the medoid, of each query.

    Returns
    -------
    dict of str to float
        Also the share of the queries that ``save``, and the ``rank_correlation`` of both arrays.
    """
    order = np.argsort(distances, kind="stable")
    n = max(1, len(order) // _SHARE)
    return {
        "saved": float(saved.mean()),
        "saved_near": float(saved[order[:n]].mean()),
        "saved_far": float(saved[order[-n:]].mean()),
        "save": float((saved > 0).mean()),
        "rank_correlation": float(spearmanr(distances, saved).statistic),
    }
