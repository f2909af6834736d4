"""Stage *certify* of an LSH index: overall ratio, recall and reads of searches for rows of the input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.formats.index.manifest import Manifest
from indexmill.pipeline.draws import CERTIFICATE, drawn_rows
from indexmill.pipeline.kinds.common.certify import QUERIES, K, certify_opened, distances_without_self
from indexmill.pipeline.kinds.common.ratio import overall_ratio
from indexmill.pipeline.kinds.common.recall import mean_recall, recall_by_distance
from indexmill.pipeline.kinds.lsh.tasks import as_hashed

if TYPE_CHECKING:
    from indexmill.reader.choices import Place
    from indexmill.reader.index import SearchResult
    from indexmill.reader.lsh import LshIndex

VERSION = 1


def certify_task(
    emitted: str, manifest: Manifest, ingest: str, seed: int, in_memory: bool, out: str, threads: int
) -> None:
    """Write ``certificate.json``: overall ratio and recall with intervals, and reads; null when there is one vector.

    The index is searched with its vectors `in_memory` or on storage, which changes no figure.
    """
    metric = manifest.parameters["metric"]
    place: Place = "memory" if in_memory else "storage"

    def measured(index: str, rows: NDArray[Any]) -> dict[str, Any] | None:
        from indexmill.reader.lsh import LshIndex

        return measure(LshIndex(index, vectors=place, tables="storage"), rows, metric, seed, threads)

    certify_opened(emitted, manifest, ingest, out, measured)


def mapped(index: str) -> LshIndex:
    """Return the index at `index`, opened to be read through the page cache.

    A run that has just written or copied the index finds it there, and a search compares thousands of vectors.
    """
    from indexmill.reader.lsh import LshIndex

    return LshIndex(index, engine="mmap", vectors="storage", tables="storage")


def measure(
    opened: LshIndex, vectors: NDArray[Any], metric: str, seed: int, threads: int
) -> dict[str, Any] | None:
    """Search an index for rows of `vectors`, shape (n_vectors, stored dim); None when there is one.

    How the index was opened changes no figure.
    """
    n = len(vectors)
    if n < 2:
        return None
    k = min(K, n - 1)
    rows = drawn_rows(seed, CERTIFICATE, n, QUERIES)
    compared = as_hashed(vectors[rows]) if metric == "ip" else vectors[rows]
    _, truth = exact_neighbours(vectors, compared, k, threads, skip=rows)
    result = opened.search(vectors[rows][:, : opened.native.dim], min(k + 1, n), threads=threads)
    squared = distances_without_self(vectors, compared, rows, result.slots, k)
    ratio = overall_ratio(np.sqrt(squared), np.sqrt(truth.astype(np.float64)))
    recall = mean_recall(recall_by_distance(squared, truth))
    counters, reads = result.counters, _reads(result)
    return {
        "queries": f"{len(rows)} rows of the input, each left out of its own results",
        "k": k,
        "ratio": _rounded(ratio.mean),
        "ratio_low": _rounded(ratio.low),
        "ratio_high": _rounded(ratio.high),
        "skipped": ratio.skipped,
        "short": ratio.short,
        **recall.facts(),
        "radii_mean": _rounded(float(counters["radii"].mean())),
        "distances_mean": _rounded(float(counters["distances"].mean())),
        "reads_mean": _rounded(float(reads.mean())),
        "reads_p99": float(np.percentile(reads, 99, method="higher")),
    }


def mean_reads(index: str, rows: NDArray[Any], threads: int) -> float:
    """Return the mean reads of tables and buckets of searches for `rows`, shape (m, dim), of the index at `index`."""
    opened = mapped(index)
    return float(_reads(opened.search(rows, min(K + 1, len(opened)), threads=threads)).mean())


def _reads(result: SearchResult) -> NDArray[np.int64]:
    """Return the reads of tables and of buckets of each query."""
    counters = result.counters
    reads: NDArray[np.int64] = counters["table_reads"].astype(np.int64) + counters["block_reads"].astype(
        np.int64
    )
    return reads


def _rounded(value: float) -> float | None:
    """Round a number for JSON, which has no NaN."""
    return None if np.isnan(value) else round(value, 6)
