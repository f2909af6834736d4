"""`tune` for hash tables: gamma, width, probes and candidates for an overall ratio or a recall, on growing samples.

Each sample is tried with fewer settings. The smallest one leaves those that nothing beats in work and space, and the
second the best of these by the work that is predicted for all vectors. S is not built into tables: of each index the
number of candidates grows until the searches are good enough. Settings are chosen by the first half of the queries,
and figures are reported of the second half. Everything except times follows from input, seed, memory and effort.
"""

from __future__ import annotations

from collections.abc import Sequence

from threadpoolctl import threadpool_limits

from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.common.ingest import check_metric
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, check_need, exact_bytes
from indexmill.pipeline.kinds.common.shape import stored_vectors
from indexmill.pipeline.kinds.lsh.parameters import lsh_parameters
from indexmill.pipeline.mill.progress import Progress, Silent
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.choice import Cost, frontier, kept
from indexmill.pipeline.tune.effort import EFFORTS, LEAST_LARGEST, samples_within
from indexmill.pipeline.tune.growth import list_size_of
from indexmill.pipeline.tune.request import TuneRequest
from indexmill.pipeline.tune.rows import rows_of
from indexmill.pipeline.tune.sample import check_enough, levels_of, samples_bytes
from indexmill.pipeline.tune.scratch import scratch_directory
from indexmill.pipeline.tune.tables.prices import TablePrices, buildable
from indexmill.pipeline.tune.tables.report import TableRow, TablesReport
from indexmill.pipeline.tune.tables.searches import SEARCH_BYTES
from indexmill.pipeline.tune.tables.space import TableCandidate, space_of
from indexmill.pipeline.tune.tables.trials import TableTrials, reached

#: Settings that are left after the smallest sample, and after the second.
KEPT = (9, 4)


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
    request.target.check(p.metric)
    sizes, n_queries, workers = _sized(request, source)
    prices, left_out = TablePrices(spec, source), list[str]()
    candidates = buildable(space_of(p), prices, left_out)
    # A build beside the samples checks for itself that there is room for it.
    need = samples_bytes(source, p.metric, sizes, n_queries if request.queries is None else 0)
    with scratch_directory(request.work, need) as directory, threadpool_limits(1):
        levels = levels_of(request, source, sizes, n_queries, workers, directory, listener)
        tried = spec.model_copy(update={"workers": workers})
        trials = TableTrials(tried, levels, request.target, directory, listener)
        candidates = _narrowed(candidates, trials, prices, request.max_reads)

    def row_of(candidate: TableCandidate, cost: Cost) -> TableRow:
        return _row(trials, candidate, cost, prices, request.k)

    rows, chosen = rows_of(candidates, trials, prices, row_of, request.max_reads, listener)
    return TablesReport(
        request=request,
        n_vectors=n,
        n_queries=n_queries,
        rows=rows,
        stated=frozenset(p.model_fields_set),
        sizes=sizes,
        job=None if chosen is None else _job(prices.job(candidates[chosen]), rows[chosen]),
        left_out=tuple(left_out),
    )


def _sized(request: TuneRequest, source: VectorSource) -> tuple[tuple[int, ...], int, int]:
    """Return the vectors of the samples, the number of queries, and the workers of the trials.

    Raises
    ------
    BudgetError
        If the memory does not hold the comparison of queries with the least sample.
    """
    spec = request.spec
    _, dim, _ = stored_vectors(source, spec.parameters.metric)
    queries, fixed = EFFORTS[request.effort].queries, FIXED_BYTES + SEARCH_BYTES

    def need(size: int, workers: int) -> int:
        return fixed + 16 * size + exact_bytes(size, dim, queries, request.k, workers)

    what = f"searching a sample of {LEAST_LARGEST:,} vectors takes"
    check_need(what, need(LEAST_LARGEST, 1), spec.memory)
    return samples_within(request, source.n_vectors, need)


def _narrowed(
    candidates: list[TableCandidate], trials: TableTrials, prices: TablePrices, max_reads: float | None
) -> list[TableCandidate]:
    """Return the settings that are left on the largest sample, all of them tried on every sample."""
    last, n = len(trials.levels) - 1, prices.source.n_vectors
    for level in range(last + 1):
        trials.run(level, candidates)
        trials.forget(level)
        if level < last:
            costs = [prices.cost(one, trials.outlook(one, level, n).reads) for one in candidates]
            candidates = [candidates[i] for i in kept_costs(costs, KEPT[level], max_reads)]
    return candidates


def kept_costs(costs: Sequence[Cost], count: int, max_reads: float | None) -> list[int]:
    """Return the places of `count` costs: that of the least work, and others that nothing beats; see `kept`."""
    reads, prices = [one.reads for one in costs], [one.price for one in costs]
    return kept(reads, prices, count, max_reads, frontier(costs))


def _row(trials: TableTrials, candidate: TableCandidate, cost: Cost, prices: TablePrices, k: int) -> TableRow:
    """Report what was measured of a candidate."""
    n, given = prices.source.n_vectors, prices.parameters(candidate).candidates
    lists = [at.list_size for at in trials.along(candidate, len(trials.levels) - 1)]
    candidates = candidates_of(trials.sizes, lists, k, n)
    return TableRow(
        candidate=candidate,
        solved=prices.solved(candidate),
        cost=cost,
        growth=trials.growth(candidate, n),
        reached=reached(trials.largest(candidate), trials.target),
        list_size=candidates if given is None else min(given, candidates),
    )


def candidates_of(sizes: Sequence[int], lists: Sequence[float], k: int, n: int) -> int:
    """Return S for `n` vectors by that of each sample: not less than of the largest, or `k`; 0 if unknown."""
    return list_size_of(sizes, lists, n, max(k, lists[-1]))


def _job(spec: BuildSpec, row: TableRow) -> BuildSpec:
    """Return the job of a candidate, whose searches check as many candidates as were found to be enough."""
    p = lsh_parameters(spec.parameters)
    if p.candidates is not None:
        return spec
    return spec.model_copy(update={"parameters": p.model_copy(update={"candidates": row.list_size})})
