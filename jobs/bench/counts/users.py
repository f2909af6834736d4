"""Part *users*: page reads that AIO-ANN's cache, its k-means pages and its start at the previous result save.

Searches are completion-driven, from the medoid unless it is said otherwise. Queries come in three sequences: as in the
set, each followed by the nearest one that was not asked yet, and by users who ask queries near each other: a query of
the set, then the points halfway between it and each of its nearest vectors.

The cache holds whole pages, those that searches for the tuning queries read most often; the paper's holds nodes.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import Row, at_recalls, ratio, summaries
from indexmill.jobs.bench.common.dataset import Dataset, read_bin, write_bin, write_truth
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.counts.graphs import Graph, at, swept
from indexmill.jobs.bench.counts.sets import KS, Case, given
from indexmill.jobs.bench.programs.ours import DISKANN_WIDTH
from indexmill.layout.kmeans_pages import balanced_cells
from indexmill.layout.order import Work
from indexmill.reader.choices import Entry
from indexmill.reader.index import Index

NAME = "text40k"
#: Neighbours that are asked for, and the ends of the paper's range of recalls.
FEW, RECALLS = KS[1], (0.90, 0.95)
#: Where searches start.
ENTRIES: tuple[Entry, ...] = ("medoid", "centroids", "previous")
#: Bytes of the cache over those of all nodes.
CACHES = (0.0, 0.01, 0.05, 0.10)
#: List size of the searches that choose the pages of a cache.
_CACHE_SIZE = 40
#: Queries of a user.
QUERIES_PER_USER = 10


def measure(run: Run) -> dict[str, Any]:
    """Count reads with each part alone, and with all of them together."""
    case = given(run, NAME)
    graph = Graph(case)
    points, tuning = np.asarray(read_bin(case.data.base)), read_bin(case.data.query)[: case.data.halves()[0]]
    cells = graph.laid_out(balanced_cells(points, graph.nodes_per_page, 1, THREADS, Work())[0])
    orders = {"identity": graph.index_of("-"), "kmeans-pages": cells.index_of("B")}
    sequences = {
        "given": case,
        "chained": asking(case, "chained", case.queries[chain(case.queries)]),
        "users": asking(case, "users", near_each_other(case.queries, points, case.truth[0])),
    }
    cached = {}
    for order, index in orders.items():
        for share in CACHES:
            print(f"  {case.name}: {order}, cache of {share:.0%}", file=sys.stderr, flush=True)
            keep_hot(index, tuning, share)
            cached[order, share] = _sweep(case, index, "medoid")
    keep_hot(orders["identity"], tuning, 0.0)
    entries = {
        name: {entry: _sweep(asked, orders["identity"], entry) for entry in ENTRIES}
        for name, asked in sequences.items()
    }
    keep_hot(orders["kmeans-pages"], tuning, CACHES[-1])
    whole = _sweep(sequences["users"], orders["kmeans-pages"], "previous")
    plain = cached["identity", 0.0]
    return {
        "queries": len(case.queries),
        "queries_per_user": QUERIES_PER_USER,
        "nodes_per_page": graph.nodes_per_page,
        "recalls": RECALLS,
        "caches": {
            order: {f"{share:g}": _beside(cached[order, share], plain) for share in CACHES}
            for order in orders
        },
        "entries": {
            name: {entry: _beside(rows, by_entry["medoid"]) for entry, rows in by_entry.items()}
            for name, by_entry in entries.items()
        },
        "together": _beside(whole, entries["users"]["medoid"]),
    }


def chain(queries: Any) -> NDArray[np.int64]:
    """Return the queries from the first one on, each followed by the nearest of those that are left.

    Parameters
    ----------
    queries : float array, shape (n_queries, dim)
    """
    squares = (queries**2).sum(axis=1)
    distances = squares[:, None] + squares - 2 * queries @ queries.T
    order = np.zeros(len(queries), np.int64)
    for place in range(1, len(queries)):
        distances[:, order[place - 1]] = np.inf
        order[place] = distances[order[place - 1]].argmin()
    return order


def near_each_other(queries: Any, base: Any, near: Any) -> Any:
    """Return queries of users, shape (n_queries, dim): the first of each is one of the set's, evenly spaced.

    The others lie halfway between it and its nearest vectors, from the nearest on.

    Parameters
    ----------
    queries, base : array, shape (n_queries, dim) and (n_vectors, dim)
    near : integer array, shape (n_queries, >= QUERIES_PER_USER - 1)
        Ids of the nearest vectors of each query.
    """
    firsts = np.arange(0, len(queries), QUERIES_PER_USER)
    asked = np.asarray(queries[firsts], np.float32)
    halfway = (asked[:, None, :] + base[near[firsts, : QUERIES_PER_USER - 1]]) / 2
    return np.concatenate([asked[:, None, :], halfway], axis=1).reshape(-1, asked.shape[1])


def asking(case: Case, name: str, queries: Any) -> Case:
    """Return the same set, written below the case's folder, of which these queries are asked."""
    data = Dataset(case.out / name)
    shutil.rmtree(data.folder, ignore_errors=True)
    data.folder.mkdir()
    (data.folder / case.data.base.name).symlink_to(case.data.base.resolve())
    write_bin(
        data.folder / case.data.query.name, np.concatenate([queries, queries])
    )  # the second half is asked
    write_truth(data)
    return replace(case, data=data)


def keep_hot(index: Index, tuning: Any, share: float) -> None:
    """Keep pages of this share of the nodes' bytes, by searches for other queries; 0 drops the cache."""
    n_bytes = round(share * (index.path / "graph.imx").stat().st_size)
    index.cache(n_bytes, tuning, L=_CACHE_SIZE, beam_width=DISKANN_WIDTH, policy="completion", entry="medoid")


def _sweep(case: Case, index: Index, entry: Entry) -> list[Row]:
    """Search an index for the queries of a case, one at a time where searches start at the previous results."""
    how: dict[str, Any] = {"threads": 1, "inflight": 1} if entry == "previous" else {"threads": THREADS}
    return swept(
        lambda size: index.search(
            case.queries, FEW, L=size, beam_width=DISKANN_WIDTH, policy="completion", entry=entry, **how
        ),
        case,
        FEW,
    )


def _beside(rows: list[Row], plain: list[Row]) -> dict[str, Any]:
    """Return page reads at each of `RECALLS`, and over those of `plain`."""

    def reads(some: list[Row], recall: float) -> float | None:
        return at(some, "pages_read", recall, FEW)

    return {
        "pages_read": at_recalls(lambda recall: reads(rows, recall), RECALLS),
        "to_plain": at_recalls(lambda recall: ratio(reads(rows, recall), reads(plain, recall)), RECALLS),
        "rows": summaries(rows),
    }
