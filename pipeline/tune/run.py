"""`tune`: degree, build list, slack, codes and nodes for a recall, found on growing samples.

The type of the nodes, and for each size of codes the rotation, are chosen first, by the small indexes that a build
chooses by. Each larger sample then tries fewer settings. The smallest one leaves the two best slacks of every degree,
the second leaves three degrees, and the largest leaves one slack and one build list of each, which are then tried with
all sizes of codes. From the second sample on, graphs are compared by their reads of all vectors as `growth`
extrapolates them, because a setting that is best for few vectors may not be best for many. Settings are chosen by the
first half of the queries, and figures are reported of the second half. Everything except times follows from input,
seed, memory and effort.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from indexmill.formats.errors import ConfigError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.common.compute import settled
from indexmill.pipeline.kinds.common.ingest import check_metric
from indexmill.pipeline.kinds.common.recall import mean_recall
from indexmill.pipeline.kinds.common.shape import stored_vectors
from indexmill.pipeline.kinds.graph.candidates import Format, largest
from indexmill.pipeline.kinds.graph.format import CEILING, format_of_each_size, has_choices
from indexmill.pipeline.kinds.graph.parameters import graph_parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.size import GraphSize, choosing_files, in_format
from indexmill.pipeline.mill.disk_space import check_free, existing_parent
from indexmill.pipeline.mill.progress import Progress, Silent, stage_progress
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.choice import (
    Cost,
    fewest_of_each_degree,
    frontier,
    kept_graphs,
    recommended,
    worthwhile_lists,
)
from indexmill.pipeline.tune.curve import MOST_CANDIDATES, recall_with
from indexmill.pipeline.tune.effort import EFFORTS, samples_of
from indexmill.pipeline.tune.growth import Outlook, extrapolated, predict
from indexmill.pipeline.tune.prices import Prices, buildable, sample_within
from indexmill.pipeline.tune.report import TuneReport, TuneRequest, TuneRow
from indexmill.pipeline.tune.sample import (
    LEAST_SAMPLE,
    RATIO,
    check_enough,
    draw,
    level_of,
)
from indexmill.pipeline.tune.scratch import scratch_bytes
from indexmill.pipeline.tune.space import Candidate, GraphCandidate, Space, space_of, tried_formats
from indexmill.pipeline.tune.trials import Trials

#: Slacks of a degree that are left after the smallest sample, and degrees after the second.
_SLACKS, LAST_DEGREES = 2, 3


def run_tune(request: TuneRequest, source: VectorSource, progress: Progress | None = None) -> TuneReport:
    """Try settings of graphs on samples of `source`; return what they cost, and which one to take.

    Raises
    ------
    ConfigError
        If the job puts codes on pages, or asks for a GPU and none can be used.
    InputError
        If there are too few vectors or queries, k is too large, or a vector that was drawn is unusable.
    BudgetError
        If nothing fits the job's memory, or that of searches, or there is no room for the samples.
    """
    listener, p = progress or Silent(), request.spec.parameters
    if graph_parameters(p).codes_on_page:
        raise ConfigError("codes_on_page: tune measures graphs with codes in memory; leave it out")
    check_enough(source.n_vectors)
    check_metric(source, p.metric)
    computes = settled(p.computes_on, request.spec.executor)
    place = Path(request.work or tempfile.gettempdir())
    _check_asked(request, source)
    spec, formats = _settled(request, source, place, listener)
    request = replace(request, spec=spec)
    tried = spec.computing_on(computes)
    prices, left_out = Prices(spec, source), list[str]()
    shape = GraphShape(*stored_vectors(source, p.metric), 0.0, graph_parameters(spec.parameters))
    space = buildable(space_of(shape, formats), prices, left_out)
    sizes, n_queries, workers = _sized(request, source, space)
    tried = tried.model_copy(update={"workers": workers})
    beside = n_queries if request.queries is None else 0
    check_free(place, scratch_bytes(tried, source, space, sizes, beside, LAST_DEGREES * _SLACKS), "tuning")
    place.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="indexmill-tune-", dir=place))
    try:
        with threadpool_limits(1):
            trials = _trials(request, tried, source, sizes, n_queries, directory, listener)
            graphs = _narrowed(space, trials, request.max_reads, source.n_vectors)
            candidates = space.coded(graphs)
            for level in range(len(sizes)):
                trials.run(level, candidates)
                trials.forget(level)
            rows, chosen = _reported(request, source, trials, candidates, prices, listener)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    job = None if chosen is None else prices.job(candidates[chosen])
    stated = frozenset(p.model_fields_set)
    return TuneReport(request, stated, source.n_vectors, sizes, n_queries, rows, job, tuple(left_out))


def _check_asked(request: TuneRequest, source: VectorSource) -> None:
    """Refuse too few queries, or too many neighbours for any samples, before anything is tried.

    Raises
    ------
    InputError
    """
    n = source.n_vectors
    samples_of(request, n, min(EFFORTS[request.effort].sample, n))


def _settled(
    request: TuneRequest, source: VectorSource, place: Path, progress: Progress
) -> tuple[BuildSpec, list[Format]]:
    """Return the job with the builder and nodes that it would have, and of each size of codes the format to try.

    Nodes may lose at most half of what the target recall may: trials are easier than all vectors.

    Raises
    ------
    BudgetError
        If `place` has no room for the trials.
    """
    spec = request.spec.computing_on("cpu")
    size, p = GraphSize(spec, source), graph_parameters(spec.parameters)
    formats = tried_formats(p, source.dim, size.formats)
    ceiling = max(CEILING, (1 + request.target_recall) / 2)
    if has_choices(formats):
        scratch = choosing_files(in_format(size.shape, largest(formats)), len(formats))
        check_free(place, scratch, "comparison of formats")
    with stage_progress(progress, "formats", 1, "tasks"):
        found = format_of_each_size(
            source, size.shape.parameters, formats, ceiling, existing_parent(place), spec.workers
        )
    fitted = size.shape.parameters  # samples are built as the whole will be
    named = {"builder": fitted.builder, "order": fitted.order, "node_dtype": found[0].node_dtype}
    p = graph_parameters(request.spec.parameters)
    return request.spec.model_copy(update={"parameters": p.model_copy(update=named)}), found


def _sized(request: TuneRequest, source: VectorSource, space: Space) -> tuple[tuple[int, ...], int, int]:
    """Return the vectors of the samples, the number of queries, and the workers of the trials."""
    n = source.n_vectors
    wanted = min(EFFORTS[request.effort].sample, n)
    most, workers = sample_within(request.spec, source, space, wanted, RATIO * LEAST_SAMPLE)
    return *samples_of(request, n, most), workers


def _trials(
    request: TuneRequest,
    spec: BuildSpec,
    source: VectorSource,
    sizes: tuple[int, ...],
    n_queries: int,
    directory: Path,
    progress: Progress,
) -> Trials:
    """Draw the samples, and find the true neighbours of the queries in each; `spec` is the job that is tried."""
    p, workers = spec.parameters, spec.workers
    drawn = draw(
        source, request.queries, sizes[-1], n_queries, p.metric, p.seed, directory, progress
    )  # fmt: skip
    levels = []
    with stage_progress(progress, "truth", len(sizes), "samples"):
        for size in sizes:
            levels.append(level_of(drawn, size, p.metric, request.k, workers, directory))
            progress.advance(1)
    return Trials(spec, levels, request.target_recall, directory, progress)


def _narrowed(space: Space, trials: Trials, max_reads: float | None, n: int) -> list[GraphCandidate]:
    """Return the graphs that are left on the largest sample."""
    last = len(trials.levels) - 1
    second = min(1, last)

    def tried(level: int, graphs: list[GraphCandidate]) -> list[Outlook]:
        """Return the predicted reads of graphs, from samples up to a level; on the smallest sample, the reads there."""
        candidates = [Candidate(graph, space.usual) for graph in graphs]
        for each in range(level + 1):
            trials.run(each, candidates)
        return [trials.outlook(one, level, n) for one in candidates]

    every = space.graphs()
    ranked = fewest_of_each_degree(every, tried(0, every), _SLACKS)
    graphs = fewest_of_each_degree(ranked, tried(0, ranked), 1)
    graphs = kept_graphs(graphs, tried(second, graphs), LAST_DEGREES, max_reads)
    graphs = [longer for graph in graphs for longer in space.with_longer_list(graph)]
    graphs = worthwhile_lists(graphs, tried(second, graphs))
    left = {(graph.max_degree, graph.alpha) for graph in ranked}
    graphs = [one._replace(alpha=a) for one in graphs for a in space.alphas if (one.max_degree, a) in left]
    return fewest_of_each_degree(graphs, tried(last, graphs), 1)


def _reported(
    request: TuneRequest,
    source: VectorSource,
    trials: Trials,
    candidates: Sequence[Candidate],
    prices: Prices,
    progress: Progress,
) -> tuple[tuple[TuneRow, ...], int | None]:
    """Choose among what was tried, and put it in rows; also the place of the one to take."""
    n, last = source.n_vectors, len(trials.levels) - 1
    tuned = [trials.outlook(one, last, n) for one in candidates]
    costs = [_cost(one, found, prices) for one, found in zip(candidates, tuned, strict=True)]
    chosen, best = recommended(costs, tuned, request.max_reads), frontier(costs)
    shown = sorted({*best, *([] if chosen is None else [chosen])})
    plans = {}
    with stage_progress(progress, "plan", len(shown), "builds"):
        for i in shown:
            plans[i] = prices.plan(candidates[i])
            progress.advance(1)
    rows = []
    for i, one in enumerate(candidates):
        row = _row(request, trials, one, costs[i], n)
        rows.append(replace(row, on_frontier=i in best, recommended=i == chosen, plan=plans.get(i)))
    return tuple(rows), chosen


def _row(request: TuneRequest, trials: Trials, candidate: Candidate, cost: Cost, n: int) -> TuneRow:
    """Report what was measured of a candidate."""
    last = len(trials.levels) - 1
    tuning = trials.along(candidate, last)
    reporting = trials.along(candidate, last, reporting=True)
    largest = tuning[-1]
    list_size = largest.list_size if largest.reached else float(MOST_CANDIDATES)
    lists = np.array([at.list_size for at in tuning])
    there = float(extrapolated(trials.sizes, lists, n))
    return TuneRow(
        candidate=candidate,
        cost=cost,
        best_recall=largest.recall,
        reads=tuple(at.reads for at in reporting),
        interval=reporting[-1].interval(),
        outlook=predict(trials.sizes, reporting, n),
        sample_list_size=math.ceil(list_size) if largest.reached else 0,
        recall=mean_recall(recall_with(trials.curve(last, candidate).reporting_half(), list_size)),
        list_size=max(request.k, math.ceil(there)) if math.isfinite(there) else 0,
    )


def _cost(candidate: Candidate, found: Outlook, prices: Prices) -> Cost:
    """Return the cost of all vectors."""
    price, graph = prices.price(candidate), candidate.graph
    return Cost(found.reads, price.memory_bytes, price.index_bytes, graph.build_list_size, graph.max_degree)
