"""Stage *certify* of an IVF index: recall by the number of lists probed, judged by which lists hold true neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.cells import nearest_cells
from indexmill.builders.cluster.closure import NO_CELL, cell_sizes
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.pipeline.draws import LISTS_CERTIFICATE, drawn_rows
from indexmill.pipeline.kinds.common.certify import QUERIES, K, write_certificate
from indexmill.pipeline.kinds.common.recall import mean_recall
from indexmill.pipeline.kinds.ivf.tasks import load_centroids

VERSION = 2


def certify_task(ingest: str, centroids: str, labels: list[str], seed: int, out: str, threads: int) -> None:
    """Write ``certificate.json``: the share of true neighbours in the probed lists, leave-one-out.

    That is the recall of flat lists; other codecs lose some on top. Null when there is one vector.
    """
    vectors = np.load(Path(ingest) / "vectors.npy", mmap_mode="r")
    cells = np.empty((len(vectors), np.load(labels[0], mmap_mode="r").shape[1]), np.uint32)
    first = 0
    for file in labels:
        part = np.load(file, mmap_mode="r")
        cells[first : first + len(part)] = part
        first += len(part)
    write_certificate(out, certify(vectors, cells, load_centroids(Path(centroids)), seed, threads))


def list_recalls(ranks: NDArray[np.int64], n_lists: int) -> NDArray[np.float64]:
    """Return the recall of each query when 1, 2 ... n_lists lists are probed.

    Parameters
    ----------
    ranks : int64 array, shape (n_queries, k)
        Rank, from 0, of the list of each true neighbour among the lists by distance from the query; -1 where the
        query has fewer than k neighbours at all.

    Returns
    -------
    float64 array, shape (n_queries, n_lists)
    """
    n_queries, k = ranks.shape
    counts = np.zeros((n_queries, n_lists + 1))
    np.add.at(counts, (np.arange(n_queries)[:, None], np.where(ranks < 0, 0, ranks)), 1.0)
    recalls: NDArray[np.float64] = np.cumsum(counts[:, :n_lists], axis=1) / k
    return recalls


def ranks_of(cells: NDArray[np.uint32], order: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the rank of each query's `cells` (n_queries, k) in its `order` (n_queries, n_lists) of all lists."""
    place = np.empty(order.shape, np.int64)
    np.put_along_axis(place, order.astype(np.int64), np.arange(order.shape[1])[None, :], axis=1)
    return np.take_along_axis(place, cells.astype(np.int64), 1)


def certify(
    vectors: NDArray[Any], cells: NDArray[np.uint32], centroids: NDArray[np.float32], seed: int, threads: int
) -> dict[str, Any] | None:
    """Return the certificate of an index whose vectors lie in lists `cells`, (n, copies); None for one vector."""
    n = len(vectors)
    if n < 2:
        return None
    k = min(K, n - 1)
    rows = drawn_rows(seed, LISTS_CERTIFICATE, n, QUERIES)
    queries = np.asarray(vectors[rows])
    truth, _ = exact_neighbours(vectors, queries, k, threads, skip=rows)
    order = nearest_cells(queries, centroids, len(centroids), threads)
    ranks = np.full(truth.shape, len(centroids))
    for copy in cells.T:
        there = copy[truth] != NO_CELL
        ranks = np.where(there, np.minimum(ranks, ranks_of(np.where(there, copy[truth], 0), order)), ranks)
    recalls = list_recalls(ranks, len(centroids))
    shares = cell_sizes(cells, len(centroids))[order].cumsum(axis=1).mean(axis=0) / n
    probes = [p for p in (1, 2, 4, 8, 16, 32, 64, 128) if p < len(centroids)] or [len(centroids)]
    measured = [mean_recall(recalls[:, p - 1]) for p in probes]
    return {
        "queries": f"{len(rows)} rows of the input, each left out of its own results",
        "k": k,
        "nprobe": probes,
        "recall": [round(one.mean, 6) for one in measured],
        "recall_low": [round(one.low, 6) for one in measured],
        "recall_high": [round(one.high, 6) for one in measured],
        "share_scanned": [round(float(shares[p - 1]), 6) for p in probes],
    }
