"""`tune` for hash tables: gamma, width, probes and candidates for an overall ratio or a recall, on growing samples.

Each sample is tried with fewer settings. The smallest one leaves those that nothing beats in work and space, and the
second the best of these by the work that is predicted for all vectors. S is not built into tables: of each index the
number of candidates grows until the searches are good enough. Settings are chosen by the first half of the queries,
and figures are reported of the second half. Everything except times follows from input, seed, memory and effort.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.formats.errors import BudgetError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.common.ingest import check_metric
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, exact_bytes
from indexmill.pipeline.kinds.common.shape import stored_vectors
from indexmill.pipeline.kinds.lsh.parameters import lsh_parameters
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.progress import Progress, Silent, stage_progress
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.choice import frontier, recommended
from indexmill.pipeline.tune.effort import EFFORTS, samples_of
from indexmill.pipeline.tune.growth import extrapolated, predict
from indexmill.pipeline.tune.report import TuneRequest
from indexmill.pipeline.tune.sample import (
    LEAST_SAMPLE,
    RATIO,
    check_enough,
    draw,
    level_of,
)
from indexmill.pipeline.tune.tables.prices import TableCost, TablePrices
from indexmill.pipeline.tune.tables.report import TableRow, TablesReport
from indexmill.pipeline.tune.tables.searches import target_of
from indexmill.pipeline.tune.tables.space import TableCandidate, space_of
from indexmill.pipeline.tune.tables.trials import TableTrials

#: Settings that are left after the smallest sample, and after the second.
KEPT = (9, 4)
#: Memory of the searches of a sample: functions, bitmap and buffers of an index that the page cache holds.
_SEARCH_BYTES = 32 << 20


def tune_tables(request: TuneRequest, source: VectorSource, progress: Progress | None = None) -> TablesReport:
    """Try settings on samples of `source`; return what they cost, and which one to take.

    Raises
    ------
    ConfigError
        If parameters do not go together, or a ratio is wanted under inner product.
    InputError
        If there are too few vectors or queries, k is too large, or a vector that was drawn is unusable.
    BudgetError
        If nothing fits the job's memory or disk, or there is no room for the samples.
    """
    listener, spec, n = progress or Silent(), request.spec, source.n_vectors
    p = lsh_parameters(spec.parameters)
    check_enough(n)
    check_metric(source, p.metric)
    target = target_of(request.target_recall, request.target_ratio, p.metric)
    sizes, n_queries, workers = _sized(request, source)
    prices, left_out = TablePrices(spec, source), list[str]()
    candidates = prices.buildable(space_of(p), left_out)
    place = Path(request.work or tempfile.gettempdir())
    beside = n_queries if request.queries is None else 0
    check_free(place, _drawn_bytes(source, p.metric, sizes, beside), "tuning")
    place.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="indexmill-tune-", dir=place))
    try:
        with threadpool_limits(1):
            drawn = draw(source, request.queries, sizes[-1], n_queries, p.metric, p.seed, directory, listener)
            levels = []
            with stage_progress(listener, "truth", len(sizes), "samples") as shown:
                for size in sizes:
                    levels.append(level_of(drawn, size, p.metric, request.k, workers, directory))
                    shown.advance(1)
            tried = spec.model_copy(update={"workers": workers})
            trials = TableTrials(tried, prices, levels, target, directory, listener)
            candidates = _narrowed(candidates, trials, prices, request.max_reads, n)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    rows, chosen = _reported(request, trials, candidates, prices, n, listener)
    job = None if chosen is None else _job(prices.job(candidates[chosen]), rows[chosen])
    stated = frozenset(p.model_fields_set)
    return TablesReport(request, target, stated, n, sizes, n_queries, rows, job, tuple(left_out))


def _sized(request: TuneRequest, source: VectorSource) -> tuple[tuple[int, ...], int, int]:
    """Return the vectors of the samples, the number of queries, and the workers of the trials.

    Raises
    ------
    BudgetError
        If the memory does not hold the comparison of queries with the least sample.
    """
    how, n, spec = EFFORTS[request.effort], source.n_vectors, request.spec
    _, dim, *_ = stored_vectors(source, spec.parameters.metric)

    def need(size: int, workers: int) -> int:
        return (
            FIXED_BYTES + _SEARCH_BYTES + 16 * size + exact_bytes(size, dim, how.queries, request.k, workers)
        )

    least, size, workers = RATIO * LEAST_SAMPLE, min(how.sample, n), spec.workers
    if need(least, 1) > spec.memory:
        raise BudgetError(
            f"memory: to tune on a sample of {least:,} vectors needs {need(least, 1):,} bytes, the budget is "
            f"{spec.memory:,}; give that many with --memory"
        )
    while need(size, 1) > spec.memory:
        size -= max(1, size // 8)
    while need(size, workers) > spec.memory:
        workers -= 1
    return *samples_of(request, n, size), workers


def _drawn_bytes(source: VectorSource, metric: str, sizes: Sequence[int], queries: int) -> int:
    """Return the bytes of the samples: as they are drawn, and each as a file and as it is stored.

    A build beside them checks for itself that there is room for it.
    """
    row = source.dim * source.dtype.itemsize
    _, dim, dtype, *_ = stored_vectors(source, metric)
    return (sizes[-1] + queries) * row + sum(sizes) * (row + 2 * dim * dtype.itemsize)


def _narrowed(
    candidates: list[TableCandidate],
    trials: TableTrials,
    prices: TablePrices,
    max_reads: float | None,
    n: int,
) -> list[TableCandidate]:
    """Return the settings that are left on the largest sample, all of them tried on every sample."""
    last = len(trials.levels) - 1
    for level in range(last + 1):
        trials.run(level, candidates)
        trials.forget(level)
        if level < last:
            costs = [prices.cost(one, trials.outlook(one, level, n).reads) for one in candidates]
            left = kept(costs, KEPT[level], max_reads)
            candidates = [candidates[i] for i in left]
    return candidates


def kept(costs: Sequence[TableCost], count: int, max_reads: float | None) -> list[int]:
    """Return the places of `count` costs, ascending: that of the least work, and others that nothing beats.

    Where work is limited, the smallest indexes within the limit come before them: what is wanted is a small index.
    """
    order = sorted(range(len(costs)), key=lambda i: (costs[i].reads, costs[i].price))
    within = [] if max_reads is None else [i for i in order if costs[i].reads <= max_reads]
    best = set(frontier(costs))
    ranked = [
        order[0], *sorted(within, key=lambda i: costs[i].price), *(i for i in order if i in best), *order
    ]  # fmt: skip
    return sorted(list(dict.fromkeys(ranked))[:count])


def _reported(
    request: TuneRequest, trials: TableTrials, candidates: Sequence[TableCandidate], prices: TablePrices, n: int,
    progress: Progress,
) -> tuple[tuple[TableRow, ...], int | None]:  # fmt: skip
    """Choose among what was tried, and put it in rows; also the place of the one to take."""
    last = len(trials.levels) - 1
    tuned = [trials.outlook(one, last, n) for one in candidates]
    costs = [prices.cost(one, found.reads) for one, found in zip(candidates, tuned, strict=True)]
    chosen, best = recommended(costs, tuned, request.max_reads), frontier(costs)
    shown = sorted({*best, *([] if chosen is None else [chosen])})
    plans = {}
    with stage_progress(progress, "plan", len(shown), "builds"):
        for i in shown:
            plans[i] = prices.plan(candidates[i])
            progress.advance(1)
    rows = []
    for i, one in enumerate(candidates):
        row = _row(trials, one, costs[i], prices, request.k, n)
        rows.append(replace(row, on_frontier=i in best, recommended=i == chosen, plan=plans.get(i)))
    return tuple(rows), chosen


def _row(
    trials: TableTrials, candidate: TableCandidate, cost: TableCost, prices: TablePrices, k: int, n: int
) -> TableRow:
    """Report what was measured of a candidate."""
    last, sizes, given = len(trials.levels) - 1, trials.sizes, prices.parameters(candidate).candidates
    reporting = trials.along(candidate, last, reporting=True)
    lists = np.array([at.list_size for at in trials.along(candidate, last)])
    candidates = candidates_of(sizes, lists, k, n)
    return TableRow(
        candidate=candidate,
        solved=prices.solved(candidate),
        cost=cost,
        work=tuple(at.reads for at in reporting),
        interval=reporting[-1].interval(),
        outlook=predict(sizes, reporting, n),
        reached=trials.reached(candidate),
        candidates=candidates if given is None else min(given, candidates),
    )


def candidates_of(sizes: Sequence[int], lists: NDArray[np.float64], k: int, n: int) -> int:
    """Return S for `n` vectors by that of each sample, (len(sizes),): not less than of the largest; 0 if unknown."""
    there = max(float(extrapolated(sizes, lists, n)), float(lists[-1]))
    return max(k, math.ceil(there)) if math.isfinite(there) else 0


def _job(spec: BuildSpec, row: TableRow) -> BuildSpec:
    """Return the job of a candidate, whose searches check as many candidates as were found to be enough."""
    p = lsh_parameters(spec.parameters)
    if p.candidates is not None:
        return spec
    return spec.model_copy(update={"parameters": p.model_copy(update={"candidates": row.candidates})})
