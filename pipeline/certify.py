"""Stage *certify*: open what was emitted and measure it, leave-one-out, on rows of the input.

Sampled rows are searched for with themselves left out, of the results and of the truth. They stand for
queries that come from the same source as the vectors; queries from elsewhere are harder, which is why
``indexmill score`` exists. Only counts are certified, no times: the certificate is part of the bytes that
two equal builds share.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from indexmill.builders.exact import exact_neighbours
from indexmill.pipeline.ingest import read_summary
from indexmill.pipeline.recall import mean_recall, recall_by_distance

if TYPE_CHECKING:
    from indexmill.reader.choices import Entry, Policy

VERSION = 2
QUERIES = 200
K = 10
LIST_SIZE = 100
POLICY: Policy = "pipeline"
BEAM_WIDTH = 8
#: Keeps the queries apart from the training sample, which is drawn with the same seed.
_STREAM = 0xCE57


def certify_task(index: str, ingest: str, seed: int, out: str, threads: int) -> None:
    """Write ``certificate.json``: recall@10 with interval and page reads, or null when there is one vector."""
    (Path(out) / "certificate.json").write_text(json.dumps(_certificate(index, ingest, seed, threads)))


def _certificate(index: str, ingest: str, seed: int, threads: int) -> dict[str, Any] | None:
    from indexmill.reader.index import Index

    summary = read_summary(Path(ingest))
    n = summary.n_vectors
    if n < 2:
        return None
    k = min(K, n - 1)
    vectors = np.load(Path(ingest) / "vectors.npy", mmap_mode="r")
    rows = np.sort(np.random.default_rng([seed, _STREAM]).choice(n, min(QUERIES, n), replace=False))
    queries = vectors[rows]
    queries[:, summary.dim :] = 0  # inner product: a query has nothing in the added dimension
    _, truth = exact_neighbours(vectors, queries, k, threads, skip=rows)
    opened = Index(index)
    list_size = max(LIST_SIZE, k + 1)
    entry: Entry = "navigation" if opened.native.n_navigation else "centroids"
    result = opened.search(
        queries[:, : summary.dim],
        min(k + 1, n),
        L=list_size,
        policy=POLICY,
        entry=entry,
        beam_width=BEAM_WIDTH,
        threads=threads,
        deterministic=True,
    )
    found = _distances_without_self(vectors, queries, rows, result.vector_ids, k)
    recall = mean_recall(recall_by_distance(found, truth))
    pages = result.counters["pages_read"]
    return {
        "queries": f"{len(rows)} rows of the input, each left out of its own results",
        "k": k,
        "policy": POLICY,
        "entry": entry,
        "beam_width": BEAM_WIDTH,
        "search_list_size": list_size,
        "recall": round(recall.mean, 6),
        "recall_low": round(recall.low, 6),
        "recall_high": round(recall.high, 6),
        "pages_read_mean": round(float(pages.mean()), 6),
        "pages_read_p99": float(np.percentile(pages, 99, method="higher")),
    }


def _distances_without_self(vectors: Any, queries: Any, rows: Any, found: Any, k: int) -> Any:
    """Exact squared distances (n_queries, k) of the results, the query's own row dropped; NaN if missing."""
    differences = vectors[np.maximum(found, 0)].astype(np.float64) - queries[:, None, :].astype(np.float64)
    distances = np.einsum("qkd,qkd->qk", differences, differences)
    distances[(found < 0) | (found == rows[:, None])] = np.nan
    return np.sort(distances, axis=1)[:, :k]  # NaN sorts last
