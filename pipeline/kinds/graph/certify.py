"""Stage *certify* of a graph: recall and page reads of searches for rows of the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.formats.index.manifest import Manifest
from indexmill.pipeline.draws import CERTIFICATE, drawn_rows
from indexmill.pipeline.kinds.common.certify import QUERIES, K, certify_opened, distances_without_self
from indexmill.pipeline.kinds.common.recall import mean_recall, recall_by_distance

if TYPE_CHECKING:
    from indexmill.reader.choices import Entry, Policy

VERSION = 2
LIST_SIZE = 100
POLICY: Policy = "pipeline"
BEAM_WIDTH = 8


def certify_task(emitted: str, manifest: Manifest, ingest: str, seed: int, out: str, threads: int) -> None:
    """Write ``certificate.json``: recall@10 with interval and page reads, or null when there is one vector."""
    certify_opened(emitted, manifest, ingest, out, lambda index, rows: measure(index, rows, seed, threads))


def measure(
    index: str,
    vectors: NDArray[Any],
    seed: int,
    threads: int,
    *,
    row_of_slot: NDArray[np.uint32] | None = None,
    as_queries: Callable[[NDArray[Any]], NDArray[Any]] = lambda rows: rows,
) -> dict[str, Any] | None:
    """Search the index at `index` for rows of `vectors`; None when there is one vector.

    Parameters
    ----------
    vectors : array, shape (n_vectors, stored dim)
        Searched by brute force for the truth: one pass in order.
    row_of_slot : uint32 array, shape (n_vectors,), optional
        Row of each slot's vector; by default a vector's row is its vector id.
    as_queries : callable
        Turns rows of `vectors` into queries of the index.
    """
    from indexmill.reader.index import Index

    n = len(vectors)
    if n < 2:
        return None
    k = min(K, n - 1)
    opened = Index(index, engine="mmap")  # its pages were just written or copied, and lie in the page cache
    rows = drawn_rows(seed, CERTIFICATE, n, QUERIES)
    queries = vectors[rows]
    queries[:, opened.dim :] = 0  # inner product: a query has nothing in the added dimension
    _, truth = exact_neighbours(vectors, queries, k, threads, skip=rows)
    list_size = max(LIST_SIZE, k + 1)
    entry: Entry = "navigation" if opened.native.n_navigation else "centroids"
    result = opened.search(
        as_queries(queries)[:, : opened.dim],
        min(k + 1, n),
        L=list_size,
        policy=POLICY,
        entry=entry,
        beam_width=BEAM_WIDTH,
        threads=threads,
        deterministic=True,
    )
    found = result.vector_ids
    if row_of_slot is not None:
        found = np.where(result.slots < 0, -1, row_of_slot[result.slots].astype(np.int64))
    distances = distances_without_self(vectors, queries, rows, found, k)
    recall = mean_recall(recall_by_distance(distances, truth))
    pages = result.counters["pages_read"]
    return {
        "queries": f"{len(rows)} rows of the input, each left out of its own results",
        "k": k,
        "policy": POLICY,
        "entry": entry,
        "beam_width": BEAM_WIDTH,
        "search_list_size": list_size,
        **recall.facts(),
        "pages_read_mean": round(float(pages.mean()), 6),
        "pages_read_p99": float(np.percentile(pages, 99, method="higher")),
    }
