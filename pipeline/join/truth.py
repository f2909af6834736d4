"""The true nearest vectors of queries, streamed from the vectors themselves or from flat lists of an IVF index."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.builders.lists.coded import coded_bytes
from indexmill.builders.lists.exact import BLOCK_BYTES, QUERY_BLOCK, ExactSearch, exact_query_bytes
from indexmill.builders.lists.scan import Nearest, nothing, united
from indexmill.formats.errors import BudgetError, ConfigError, InputError
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.sources.source import VectorSource
from indexmill.formats.sources.truth import Truth
from indexmill.formats.sources.validate import check_batch
from indexmill.pipeline.join.batches import every_batch
from indexmill.pipeline.join.memory import Need, check_need, join_need
from indexmill.pipeline.join.queries import Queries
from indexmill.pipeline.join.search import Search
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.common.metric import unit
from indexmill.pipeline.mill.progress import Progress, Silent
from indexmill.pipeline.spec import DEFAULT_MEMORY

#: Vector ids of a truth file are uint32, and one of them stands for nothing.
_MOST_VECTORS = 2**32 - 1


def truth_of_vectors(
    source: VectorSource,
    queries: NDArray[Any],
    k: int,
    metric: str = "l2",
    threads: int = 2,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Truth:
    """Return the k nearest vectors of each query by `metric`, reading the vectors once (twice for ip).

    Distances are squared Euclidean ones: under cosine of unit vectors, under inner product with the added component.

    Memory: see `vectors_need`.

    Raises
    ------
    ConfigError
        If `metric` is ip and the vectors are integers.
    InputError
        If the queries do not suit the vectors, there are fewer than k, or a vector is no finite one.
    BudgetError
        If queries and neighbours do not fit `memory`.
    """
    _check(source.n_vectors, source.dim, queries, k)
    if metric == "ip" and source.dtype.kind != "f":
        raise ConfigError(f"metric: ip needs float vectors, but {source.paths[0]} holds {source.dtype}")
    need = vectors_need(source, queries, k, metric, threads)
    if memory is not None and need.least > memory:
        raise BudgetError(
            f"memory: {len(queries):,} queries need {need.least:,} bytes, the budget is {memory:,}; give more, lower "
            "-k or --workers, or ask fewer queries at a time"
        )
    rows = max(1, BLOCK_BYTES // (source.dim * source.dtype.itemsize))
    with threadpool_limits(1):
        prepare, asked = _euclidean(source, queries, metric, rows)
        search = ExactSearch(
            asked, k, threads, query_block=QUERY_BLOCK if memory is None else need.block(memory)
        )
        listener = progress or Silent()
        listener.start("truth", source.n_vectors, "vectors")
        for batch in source.batches(rows):
            check_batch(batch, metric)
            search.add(batch.start, prepare(np.asarray(batch.vectors)))
            listener.advance(len(batch.vectors))
        listener.finish()
    return _as_truth(search.found)


def truth_of_index(
    index: str | os.PathLike[str],
    queries: NDArray[Any],
    k: int,
    threads: int = 2,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Truth:
    """Return the k nearest vectors of each query by an IVF index's metric: a join that probes all lists.

    Raises
    ------
    ConfigError
        If the lists are not flat, so that the vectors themselves are not there.
    CorruptFile
        If batches cannot be read; it names all.
    IndexmillError
        As `truth_of_vectors`.
    """
    files = IvfFiles(os.fspath(index))
    shared = files.centroids
    if shared.codec != "flat":
        raise ConfigError(
            f"{index}: its lists hold codes ({shared.codec}); name the files of the vectors instead"
        )
    _check(shared.n_vectors - files.manifest.n_deleted, shared.dim - (shared.metric == "ip"), queries, k)
    asked = Queries(shared, queries)
    held = len(queries) * k * 20
    need = join_need(files, queries.dtype, len(queries), k, shared.n_lists, threads)
    need = replace(need, fixed=need.fixed + held)
    if memory is not None:
        check_need(files, need, memory)
    block = need.block(DEFAULT_MEMORY if memory is None else memory)
    best = nothing(len(queries), k)

    def refused(unread: int) -> tuple[str, str]:
        return (
            f"{index}: {unread} of {len(files.batches)} batches cannot be read:",
            "restore these files and run again",
        )

    with threadpool_limits(1):
        asked.digest()  # looks at all of them before batches are read
        search = Search(shared, k, shared.n_lists, threads, by_distance=True)
        for batch in every_batch(files, progress or Silent(), "truth", refused):
            for first in range(0, len(queries), block):
                part = slice(first, min(first + block, len(queries)))
                nearest = search.run(batch.lists, asked.block(part.start, part.stop), None)
                before = Nearest(best.keys[part], best.ids[part])
                best.keys[part], best.ids[part] = united([before, nearest], k)
    return _as_truth(best)


def vectors_need(source: VectorSource, queries: NDArray[Any], k: int, metric: str, threads: int) -> Need:
    """Return the memory of a search of vectors: queries and neighbours, blocks of vectors, and queries at a time."""
    dim = source.dim + (metric == "ip")
    converted = 0 if metric == "l2" else 4 * len(queries) * dim
    block = BLOCK_BYTES * (2 + 4 // source.dtype.itemsize) + (64 << 20)
    a_thread = max(6 << 20, coded_bytes(dim).thread)
    fixed = FIXED_BYTES + queries.nbytes + converted + 20 * len(queries) * k + block + threads * a_thread
    return Need(fixed, exact_query_bytes(dim, k, threads) + 92 * k, len(queries), 1)


def _check(n_vectors: int, dim: int, queries: NDArray[Any], k: int) -> None:
    if queries.ndim != 2 or queries.shape[1] != dim:
        got = queries.shape[-1] if queries.ndim else 0
        raise InputError(
            f"queries: {got} dimensions, but the vectors have {dim}; pass the queries that belong to them"
        )
    if n_vectors > _MOST_VECTORS:
        raise InputError(
            f"{n_vectors:,} vectors: a truth file names at most {_MOST_VECTORS:,}; split the input"
        )
    if not 1 <= k <= n_vectors:
        raise InputError(
            f"k: {k} neighbours wanted of {n_vectors:,} vectors; use at least 1 and at most that many"
        )


def _euclidean(
    source: VectorSource, queries: NDArray[Any], metric: str, rows: int
) -> tuple[Callable[[NDArray[Any]], NDArray[Any]], NDArray[Any]]:
    """Return a map of vectors under which the nearest by `metric` are the nearest by l2, and the mapped queries."""
    if metric == "cosine":
        zero = np.flatnonzero(~queries.any(axis=1))
        if len(zero):
            raise InputError(f"queries: row {zero[0]} is zero, which has no direction; leave it out")
        return unit, unit(queries)
    if metric == "l2":
        return lambda vectors: vectors, queries
    most = max(float(_squares(batch.vectors).max()) for batch in source.batches(rows))

    def lifted(vectors: NDArray[Any]) -> NDArray[Any]:
        return np.column_stack(
            [vectors.astype(np.float32), np.sqrt(most - _squares(vectors)).astype(np.float32)]
        )

    return lifted, np.column_stack([queries.astype(np.float32), np.zeros(len(queries), np.float32)])


def _squares(vectors: NDArray[Any]) -> NDArray[np.float64]:
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    return squares


def _as_truth(found: Nearest) -> Truth:
    return Truth(found.ids, found.keys.astype(np.float32))
