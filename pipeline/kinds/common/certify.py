"""Stage *certify*: open what was emitted and measure it, leave-one-out, on rows of the input.

Sampled rows are searched for with themselves left out, of the results and of the truth. They stand for
queries that come from the same source as the vectors; queries from elsewhere are harder, which is why
``indexmill score`` exists. Only counts are certified, no times: the certificate is part of the bytes that
two equal builds share.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.formats.index.manifest import Manifest, write_manifest
from indexmill.formats.pagefile.atomic import link_or_copy
from indexmill.pipeline.kinds.common.recall import mean_recall, recall_by_distance

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


def certify_task(emitted: str, manifest: Manifest, ingest: str, seed: int, out: str, threads: int) -> None:
    """Write ``certificate.json``: recall@10 with interval and page reads, or null when there is one vector.

    The files in `emitted` are opened as the index that they will be, under `manifest`.
    """
    vectors = np.load(Path(ingest) / "vectors.npy", mmap_mode="r")
    with tempfile.TemporaryDirectory(dir=out) as index:
        for file in manifest.files:
            link_or_copy(Path(emitted) / file.name, Path(index) / file.name)
        write_manifest(Path(index), manifest)
        certificate = measure(index, vectors, seed, threads)
    (Path(out) / "certificate.json").write_text(json.dumps(certificate))


def read_certificate(directory: Path) -> dict[str, Any] | None:
    """Read what `certify_task` wrote."""
    found: dict[str, Any] | None = json.loads((directory / "certificate.json").read_text())
    return found


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
        Turns rows of `vectors` into what the index takes for queries.
    """
    from indexmill.reader.index import Index

    n = len(vectors)
    if n < 2:
        return None
    k = min(K, n - 1)
    opened = Index(index)
    rows = np.sort(np.random.default_rng([seed, _STREAM]).choice(n, min(QUERIES, n), replace=False))
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
        "recall": round(recall.mean, 6),
        "recall_low": round(recall.low, 6),
        "recall_high": round(recall.high, 6),
        "pages_read_mean": round(float(pages.mean()), 6),
        "pages_read_p99": float(np.percentile(pages, 99, method="higher")),
    }


def distances_without_self(vectors: Any, queries: Any, rows: Any, found: Any, k: int) -> Any:
    """Exact squared distances (n_queries, k) of the results, the query's own row dropped; NaN if missing."""
    differences = vectors[np.maximum(found, 0)].astype(np.float64) - queries[:, None, :].astype(np.float64)
    distances = np.einsum("qkd,qkd->qk", differences, differences)
    distances[(found < 0) | (found == rows[:, None])] = np.nan
    return np.sort(distances, axis=1)[:, :k]  # NaN sorts last
