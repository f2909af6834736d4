"""`tune`: degree, build list, slack and size of codes for a recall, found on samples that grow.

Successive halving: every graph on the smallest sample, what is left of them on the next, the best few with all sizes of
codes on the largest. Those are then searched on all samples, which shows how their page reads grow, and what they come
to for all vectors (`tune_growth`). Settings are chosen by the first half of the queries; what is reported is the second
half's. Everything but times follows from input, seed, memory and effort.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from indexmill.formats.errors import ConfigError
from indexmill.formats.source import VectorSource
from indexmill.pipeline.ingest import check_metric
from indexmill.pipeline.progress import Progress, Silent, stage_progress
from indexmill.pipeline.recall import mean_recall
from indexmill.pipeline.spec import Parameters
from indexmill.pipeline.tune_choice import Cost, best_slacks, fewest, frontier, recommended, worthwhile_lists
from indexmill.pipeline.tune_curve import MOST_CANDIDATES, AtRecall, at_recall, recall_with
from indexmill.pipeline.tune_growth import carried_on, foretell, possible
from indexmill.pipeline.tune_prices import Prices, sample_within, within_memory, within_room
from indexmill.pipeline.tune_report import TuneReport, TuneRequest, TuneRow
from indexmill.pipeline.tune_sample import LEAST_SAMPLE, RATIO, check_k, draw, level_of, sample_sizes
from indexmill.pipeline.tune_space import Candidate, GraphCandidate, Space, space_of
from indexmill.pipeline.tune_trials import Trials


@dataclass(frozen=True)
class Effort:
    """How much is tried: vectors of the largest sample, and queries, at most."""

    sample: int
    queries: int


EFFORTS = {"low": Effort(25_000, 1_000), "normal": Effort(100_000, 2_000), "high": Effort(400_000, 2_000)}
#: Degrees that are left after the smallest sample, and graphs for the largest.
_SECOND, _LAST = 4, 3


def run_tune(request: TuneRequest, source: VectorSource, progress: Progress | None = None) -> TuneReport:
    """Try settings on samples of `source`; return what they cost, and which one to take.

    Raises
    ------
    ConfigError
        If the job is not one of a graph.
    InputError
        If there are too few vectors or queries, k is too large, or a vector that was drawn is unusable.
    BudgetError
        If nothing fits the job's memory, or `max_memory`.
    """
    listener, spec = progress or Silent(), request.spec
    if not isinstance(spec.parameters, Parameters):
        raise ConfigError(f"kind: tune is for graphs, got {spec.parameters.kind}; leave --kind out")
    check_metric(source, spec.parameters.metric)
    prices, left_out = Prices(spec, source), list[str]()
    space = within_room(space_of(spec.parameters, source.dim), prices, left_out)
    space = within_memory(space, prices, request.max_memory, left_out)
    how = EFFORTS[request.effort]
    given = None if request.queries is None else len(request.queries)
    most = sample_within(spec, source, space, min(how.sample, source.n_vectors), RATIO * LEAST_SAMPLE)
    sizes, n_queries = sample_sizes(source.n_vectors, most, how.queries, given)
    check_k(request.k, sizes)
    if request.work is not None:
        Path(request.work).mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="indexmill-tune-", dir=request.work))
    try:
        with threadpool_limits(1):
            trials = _trials(request, source, sizes, n_queries, directory, listener)
            candidates = _halved(space, trials, request.target_recall)
            rows, chosen = _reported(request, source, trials, candidates, prices, listener)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    job = None if chosen is None else prices.job(candidates[chosen])
    return TuneReport(request, source.n_vectors, sizes, n_queries, rows, job, tuple(left_out))


def _trials(
    request: TuneRequest,
    source: VectorSource,
    sizes: tuple[int, ...],
    n_queries: int,
    directory: Path,
    progress: Progress,
) -> Trials:
    """Draw the samples, and find the true neighbours of the queries in each."""
    p, workers = request.spec.parameters, request.spec.workers
    drawn = draw(
        source, request.queries, sizes[-1], n_queries, p.metric, p.seed, directory, progress
    )  # fmt: skip
    levels = []
    with stage_progress(progress, "truth", len(sizes), "samples"):
        for size in sizes:
            levels.append(level_of(drawn, size, p.metric, request.k, workers, directory))
            progress.advance(1)
    return Trials(request.spec, levels, request.target_recall, directory, progress)


def _halved(space: Space, trials: Trials, target: float) -> list[Candidate]:
    """Return what is left on the largest sample: its graphs with all sizes of codes, tried on every sample."""

    def tried(level: int, graphs: list[GraphCandidate]) -> list[AtRecall]:
        curves = trials.run(level, [Candidate(graph, space.usual_pq) for graph in graphs])
        return [at_recall(curve.tuning_half(), target) for curve in curves]

    last = len(trials.levels) - 1
    second = min(1, last)
    graphs = space.graphs()
    graphs = best_slacks(graphs, tried(0, graphs))
    graphs = fewest(graphs, tried(0, graphs), _SECOND)
    graphs = [longer for graph in graphs for longer in space.with_longer_list(graph)]
    graphs = worthwhile_lists(graphs, tried(second, graphs))
    graphs = fewest(graphs, tried(second, graphs), _LAST)
    candidates = [Candidate(graph, size) for graph in graphs for size in space.pq_sizes]
    for level in reversed(range(last + 1)):
        trials.run(level, candidates)
    return candidates


def _reported(
    request: TuneRequest,
    source: VectorSource,
    trials: Trials,
    candidates: Sequence[Candidate],
    prices: Prices,
    progress: Progress,
) -> tuple[tuple[TuneRow, ...], int | None]:
    """Choose among what was tried, and put it in rows; also the place of the one to take."""
    sizes, n = [level.size for level in trials.levels], source.n_vectors
    tuned = [_along(trials, one, request.target_recall, reporting=False) for one in candidates]
    costs = [_cost(one, found, sizes, n, prices) for one, found in zip(candidates, tuned, strict=True)]
    drawn = [possible(sizes, np.stack([at.draws for at in found]), n) for found in tuned]
    chosen, best = recommended(costs, drawn, request.max_reads), frontier(costs)
    shown = sorted({*best, *([] if chosen is None else [chosen])})
    plans = {}
    with stage_progress(progress, "plan", len(shown), "builds"):
        for i in shown:
            plans[i] = prices.plan(candidates[i])
            progress.advance(1)
    rows = []
    for i, one in enumerate(candidates):
        found = _along(trials, one, request.target_recall, reporting=True)
        largest = tuned[i][-1]
        list_size = largest.list_size if largest.reached else float(MOST_CANDIDATES)
        curve = trials.curve(len(sizes) - 1, one).reporting_half()
        rows.append(
            TuneRow(
                candidate=one,
                cost=costs[i],
                best_recall=largest.recall,
                on_frontier=i in best,
                recommended=i == chosen,
                reads=tuple(at.reads for at in found),
                interval=found[-1].interval(),
                forecast=foretell(sizes, [at.reads for at in found], np.stack([at.draws for at in found]), n),
                sample_list_size=math.ceil(list_size) if largest.reached else 0,
                recall=mean_recall(recall_with(curve, list_size)),
                list_size=_list_size([at.list_size for at in tuned[i]], sizes, n, request.k),
                plan=plans.get(i),
            )
        )
    return tuple(rows), chosen


def _along(trials: Trials, candidate: Candidate, target: float, *, reporting: bool) -> list[AtRecall]:
    """Return what the target costs a candidate on each sample, by one half of the queries."""
    curves = [trials.curve(level, candidate) for level in range(len(trials.levels))]
    return [
        at_recall(curve.reporting_half() if reporting else curve.tuning_half(), target) for curve in curves
    ]


def _cost(candidate: Candidate, found: list[AtRecall], sizes: list[int], n: int, prices: Prices) -> Cost:
    """Return what all vectors cost."""
    reached = all(at.reached for at in found)
    reads = float(carried_on(sizes, np.array([at.reads for at in found]), n)) if reached else math.inf
    price, graph = prices.price(candidate), candidate.graph
    return Cost(reads, price.memory_bytes, price.index_bytes, graph.build_list_size, graph.max_degree)


def _list_size(found: list[float], sizes: list[int], n: int, k: int) -> int:
    """Return L for all vectors, at least `k`; 0 where a sample did not reach the recall."""
    if not np.isfinite(found).all():
        return 0
    return max(k, math.ceil(float(carried_on(sizes, np.array(found), n))))
