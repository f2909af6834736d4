"""`tune` for searches of an index of hash tables: probes and candidates for an overall ratio or a recall.

What tables hold was decided when they were built; how many buckets of them a search looks at, and how many vectors it
measures, is for each search to say. Each number of probes is searched with more and more candidates until the target is
reached. Settings are chosen by the first half of the queries, and figures are reported of the second half.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.formats.errors import InputError
from indexmill.formats.lsh.shape import most_probes
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.draws import TUNING, drawn_rows
from indexmill.pipeline.generations.kept import copy_kept
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, check_need, exact_bytes
from indexmill.pipeline.mill.progress import Progress, Silent, stage_progress
from indexmill.pipeline.tune.effort import EFFORTS
from indexmill.pipeline.tune.queries import as_compared, check_count, check_queries, spread
from indexmill.pipeline.tune.request import SearchesRequest, Target
from indexmill.pipeline.tune.scratch import scratch_directory
from indexmill.pipeline.tune.tables.report import SearchesReport, SearchRow
from indexmill.pipeline.tune.tables.searches import (
    SEARCH_BYTES,
    Choices,
    TableCurve,
    TableQueries,
    measure_tables,
    open_tables,
)
from indexmill.pipeline.tune.tables.trials import cost_of, reached

#: Further buckets of a table that are tried, beside those of the index.
PROBES = (0, 1, 2, 4, 8, 16, 32)
#: Bytes a vector of the numbers of vectors.
_VECTOR_BYTES = 24


def tune_searches(request: SearchesRequest, progress: Progress | None = None) -> SearchesReport:
    """Search an index with more and more probes and candidates; return what they cost, and which to take.

    Raises
    ------
    ConfigError
        If a ratio is wanted under inner product.
    InputError
        If there is no index, or there are too few vectors or queries, or k is too large.
    BudgetError
        If the memory does not hold the comparison of queries with vectors, or there is no room for a copy of these.
    FormatError
        If the index is damaged.
    """
    listener = progress or Silent()
    with OpenedTables(request.path) as opened, threadpool_limits(1):
        request.target.check(opened.metric)
        row = opened.files.vectors.row_format
        left = opened.left
        _check(request, opened, len(left))
        copied = len(left) * row.dim * row.element_dtype.itemsize
        with scratch_directory(request.work, copied) as directory:
            vectors = create_npy(directory / "vectors.npy", row.element_dtype, (len(left), row.dim))
            copy_kept(opened.files.vectors, left, vectors)
            with stage_progress(listener, "truth", 1, "samples") as shown:
                asked = _asked(request, opened, vectors, left)
                shown.advance(1)
            curves = _measured(request, opened, asked, listener)
    return SearchesReport(
        request=request,
        n_vectors=len(left),
        n_queries=len(asked.vectors),
        rows=search_rows(curves, request.target, request.max_reads),
    )


def search_rows(
    curves: Mapping[int, TableCurve], target: Target, max_reads: float | None
) -> tuple[SearchRow, ...]:
    """Return a row for the curve of each number of probes; the least work of the tuning half is recommended."""
    rows = [
        SearchRow(probes=probes, reads=cost_of(curve, target).reads, reached=reached(curve, target))
        for probes, curve in curves.items()
    ]
    most = math.inf if max_reads is None else max_reads
    within = [row for row in rows if row.reached.list_size and row.reads <= most]
    best = min(within, key=lambda row: (row.reads, row.probes), default=None)
    return tuple(replace(row, recommended=row is best) for row in rows)


def _check(request: SearchesRequest, opened: OpenedTables, n: int) -> None:
    """Refuse too few queries, too many neighbours, and too little memory."""
    count = n if request.queries is None else len(request.queries)
    check_count(count)
    most = n - 1 if request.queries is None else n
    if request.k > most:
        raise InputError(f"k: {request.k:,} neighbours wanted of {most:,} vectors; use a smaller -k")
    if request.queries is not None:
        check_queries(request.queries, opened.dim, opened.metric, f"for {opened.path}", "it")
    queries = EFFORTS[request.effort].queries
    need = FIXED_BYTES + SEARCH_BYTES + _VECTOR_BYTES * opened.n
    need += exact_bytes(n, opened.files.functions.dim, queries, request.k, request.workers)
    check_need(f"searching {n:,} vectors takes", need, request.memory, ", or lower --workers")


def _asked(
    request: SearchesRequest, opened: OpenedTables, vectors: NDArray[Any], left: NDArray[np.int64]
) -> TableQueries:
    """Return the queries and their true neighbours among `vectors`, those of the slots `left`."""
    places = None
    if len(left) < opened.n:
        places = np.full(opened.n, -1, np.int64)
        places[left] = np.arange(len(left))
    count = EFFORTS[request.effort].queries
    if request.queries is None:
        own = drawn_rows(opened.parameters.seed, TUNING, len(vectors), count // 2 * 2)
        own = own[: len(own) // 2 * 2]
        # Halves of rows in order would be of different parts of the input.
        own = np.concatenate([own[::2], own[1::2]])
        compared = np.array(vectors[own])
        compared[:, opened.dim :] = 0  # inner product: a query has nothing in the added dimension
        given = compared[:, : opened.dim]
    else:
        own = None
        given = spread(request.queries, count)
        compared = as_compared(given, opened.metric, vectors.dtype)
    _, nearest = exact_neighbours(vectors, compared, request.k, request.workers, skip=own)
    return TableQueries(given, compared.astype(np.float32), vectors, nearest, places, own)


def _measured(
    request: SearchesRequest, opened: OpenedTables, asked: TableQueries, progress: Progress
) -> dict[int, TableCurve]:
    """Search with each number of probes; return the curve of each, in that order."""
    index, p = open_tables(opened.path, request.memory), opened.parameters
    most = most_probes(opened.files.shape.n_tables)
    tried = sorted({p.probes, *(one for one in PROBES if one <= most)})
    found = {}
    with stage_progress(progress, "probes", len(tried), "settings") as shown:
        for probes in tried:
            found[probes] = measure_tables(
                index, asked, request.target, Choices(probes, p.ratio), request.workers
            )
            shown.advance(1)
    return found
