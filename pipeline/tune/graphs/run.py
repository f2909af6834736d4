"""`tune` for graphs: degree, build list, slack, codes and nodes for a recall, found on growing samples.

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
from dataclasses import replace

from threadpoolctl import threadpool_limits

from indexmill.formats.errors import ConfigError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.common.compute import settled
from indexmill.pipeline.kinds.common.ingest import check_metric
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, check_need
from indexmill.pipeline.kinds.common.recall import mean_recall
from indexmill.pipeline.kinds.common.shape import stored_vectors
from indexmill.pipeline.kinds.graph import memory
from indexmill.pipeline.kinds.graph.candidates import Format, largest
from indexmill.pipeline.kinds.graph.format import CEILING, format_of_each_size, has_choices
from indexmill.pipeline.kinds.graph.parameters import graph_parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.size import GraphSize, choosing_files, in_format
from indexmill.pipeline.mill.disk_space import check_free, existing_parent
from indexmill.pipeline.mill.progress import Progress, Silent, stage_progress
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.choice import Cost
from indexmill.pipeline.tune.curve import recall_with
from indexmill.pipeline.tune.effort import EFFORTS, LEAST_LARGEST, samples_of, samples_within
from indexmill.pipeline.tune.graphs.choice import fewest_of_each_degree, kept_graphs, worthwhile_lists
from indexmill.pipeline.tune.graphs.prices import GraphPrices, buildable
from indexmill.pipeline.tune.graphs.report import GraphRow, GraphsReport
from indexmill.pipeline.tune.graphs.scratch import scratch_bytes
from indexmill.pipeline.tune.graphs.searches import MOST_CANDIDATES
from indexmill.pipeline.tune.graphs.space import Candidate, GraphCandidate, Space, space_of, tried_formats
from indexmill.pipeline.tune.graphs.trials import GraphTrials
from indexmill.pipeline.tune.growth import Outlook, list_size_of
from indexmill.pipeline.tune.report import Reached
from indexmill.pipeline.tune.request import TuneRequest
from indexmill.pipeline.tune.rows import rows_of
from indexmill.pipeline.tune.sample import check_enough, levels_of
from indexmill.pipeline.tune.scratch import scratch_directory, scratch_place

#: Slacks of a degree that are left after the smallest sample, and degrees after the second.
_SLACKS, LAST_DEGREES = 2, 3


def tune_graphs(request: TuneRequest, source: VectorSource, progress: Progress | None = None) -> GraphsReport:
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
    listener, p, n = progress or Silent(), graph_parameters(request.spec.parameters), source.n_vectors
    if p.codes_on_page:
        raise ConfigError("codes_on_page: tune measures graphs with codes in memory; leave it out")
    check_enough(n)
    check_metric(source, p.metric)
    computes = settled(p.computes_on, request.spec.executor)
    # Too few queries, or too many neighbours for any samples, are refused before anything is tried.
    samples_of(request, n, min(EFFORTS[request.effort].sample, n))
    spec, formats = _settled(request, source, listener)
    request = replace(request, spec=spec)
    prices, left_out = GraphPrices(spec, source), list[str]()
    shape = GraphShape(*stored_vectors(source, p.metric), 0.0, graph_parameters(spec.parameters))
    space = buildable(space_of(shape, formats), prices, left_out)
    sizes, n_queries, workers = sized(request, source, space)
    tried = spec.computing_on(computes).model_copy(update={"workers": workers})
    beside = n_queries if request.queries is None else 0
    need = scratch_bytes(tried, source, space, sizes, beside, LAST_DEGREES * _SLACKS)
    with scratch_directory(request.work, need) as directory, threadpool_limits(1):
        levels = levels_of(request, source, sizes, n_queries, workers, directory, listener)
        trials = GraphTrials(tried, levels, request.target, directory, listener)
        candidates = space.coded(_narrowed(space, trials, request.max_reads, n))
        for level in range(len(sizes)):
            trials.run(level, candidates)
            trials.forget(level)

    def row_of(candidate: Candidate, cost: Cost) -> GraphRow:
        return _row(trials, candidate, cost, request.k, n)

    rows, chosen = rows_of(candidates, trials, prices, row_of, request.max_reads, listener)
    return GraphsReport(
        request=request,
        n_vectors=n,
        n_queries=n_queries,
        rows=rows,
        stated=frozenset(p.model_fields_set),
        sizes=sizes,
        job=None if chosen is None else prices.job(candidates[chosen]),
        left_out=tuple(left_out),
    )


def _settled(
    request: TuneRequest, source: VectorSource, progress: Progress
) -> tuple[BuildSpec, list[Format]]:
    """Return the job with the builder and nodes that it would have, and of each size of codes the format to try.

    Nodes may lose at most half of what the target recall may: trials are easier than all vectors.

    Raises
    ------
    BudgetError
        If there is no room for the trials.
    """
    spec, place = request.spec.computing_on("cpu"), scratch_place(request.work)
    size, p = GraphSize(spec, source), graph_parameters(spec.parameters)
    formats = tried_formats(p, source.dim, size.formats)
    ceiling = max(CEILING, (1 + request.target.value) / 2)
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


def sized(request: TuneRequest, source: VectorSource, space: Space) -> tuple[tuple[int, ...], int, int]:
    """Return the vectors of the samples, the number of queries, and the workers of the trials.

    Samples are built in one piece.

    Raises
    ------
    BudgetError
        If the memory does not hold the build of the least sample.
    """
    spec, p = request.spec, graph_parameters(request.spec.parameters)
    widest = p.model_copy(
        update={"max_degree": max(space.degrees), **space.largest_code()._asdict(), "shard_vectors": None}
    )

    def need(size: int, workers: int) -> int:
        shape = GraphShape(*stored_vectors(source, p.metric, size), 0.0, widest)
        return FIXED_BYTES + max(memory.stage_bytes(shape, spec.memory, workers).values())

    what = f"building a sample of {LEAST_LARGEST:,} vectors with R={max(space.degrees)} takes"
    check_need(what, need(LEAST_LARGEST, 1), spec.memory, ", or fix a smaller -R")
    return samples_within(request, source.n_vectors, need)


def _narrowed(space: Space, trials: GraphTrials, max_reads: float | None, n: int) -> list[GraphCandidate]:
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


def _row(trials: GraphTrials, candidate: Candidate, cost: Cost, k: int, n: int) -> GraphRow:
    """Report what was measured of a candidate."""
    tuning = trials.along(candidate, len(trials.levels) - 1)
    largest = tuning[-1]
    list_size = largest.list_size if largest.reached else float(MOST_CANDIDATES)
    reporting = trials.largest(candidate).half(reporting=True)
    return GraphRow(
        candidate=candidate,
        cost=cost,
        growth=trials.growth(candidate, n),
        reached=Reached(
            list_size=math.ceil(list_size) if largest.reached else 0,
            best=largest.recall,
            recall=mean_recall(recall_with(reporting, list_size)),
        ),
        list_size=list_size_of(trials.sizes, [at.list_size for at in tuning], n, k),
    )
