"""Memory, space and time of the index of all vectors, as `plan` predicts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.build import work_directory
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.common.shape import stored_vectors
from indexmill.pipeline.kinds.graph import memory
from indexmill.pipeline.kinds.graph.parameters import graph_parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.size import GraphSize
from indexmill.pipeline.plan import Plan, make_plan
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.space import Candidate, GraphCandidate, Space


@dataclass(frozen=True)
class Price:
    """Bytes that searches hold of an index, and that it takes on storage."""

    memory_bytes: int
    index_bytes: int


class Prices:
    """Prices of candidates, for all vectors of a job.

    Parameters
    ----------
    spec : BuildSpec
    source : VectorSource
    """

    def __init__(self, spec: BuildSpec, source: VectorSource) -> None:
        self._spec, self._source = spec, source
        self._plans: dict[GraphCandidate, Plan] = {}

    def job(self, candidate: Candidate) -> BuildSpec:
        """Return the job that builds a candidate."""
        p = candidate.applied(graph_parameters(self._spec.parameters))
        return self._spec.model_copy(update={"parameters": p})

    def price(self, candidate: Candidate) -> Price:
        """Return memory and space.

        Raises
        ------
        BudgetError
            If the build does not fit the job's memory.
        """
        size = self._size(candidate)
        return Price(size.shape.held_bytes, size.needed_scratch()[1]["emit"])

    def check_fits(self, candidate: Candidate) -> None:
        """Refuse what cannot be built.

        Raises
        ------
        BudgetError
            If the build does not fit memory or disk.
        """
        self._size(candidate).check_space(work_directory(self._spec), 0)

    def why_not(self, candidate: Candidate) -> str | None:
        """Return why a candidate cannot be built; None if it can."""
        try:
            self.check_fits(candidate)
        except (BudgetError, ConfigError) as error:
            return str(error)
        return None

    def too_much(self, candidate: Candidate, most: int) -> str | None:
        """Return why searches of a candidate hold more than `most` bytes; None if they do not."""
        need = self.price(candidate).memory_bytes
        return None if need <= most else f"searches would hold {need:,} bytes, the limit is {most:,}"

    def plan(self, candidate: Candidate) -> Plan:
        """Return the plan of the build; candidates of one graph share it, for codes hardly change it."""
        if candidate.graph not in self._plans:
            self._plans[candidate.graph] = make_plan(self.job(candidate), self._source)
        return self._plans[candidate.graph]

    def _size(self, candidate: Candidate) -> GraphSize:
        job = self.job(candidate).computing_on("cpu")  # sizes are the same on a GPU, which need not be here
        return GraphSize(job, self._source)


def buildable(space: Space, prices: Prices, left_out: list[str]) -> Space:
    """Return `space` without sizes of codes and degrees that cannot be built, and say why in `left_out`.

    Raises
    ------
    BudgetError
        If not even the smallest can.
    """
    prices.check_fits(Candidate(space.graphs()[0], space.pq_sizes[0]))
    return _within(space, prices.why_not, left_out)


def within_memory(space: Space, prices: Prices, most: int | None, left_out: list[str]) -> Space:
    """Return `space` without what makes searches hold more than `most` bytes; say so in `left_out`.

    Raises
    ------
    BudgetError
        If they do with the smallest degree and codes.
    """
    if most is None:
        return space
    least = Candidate(space.graphs()[0], space.pq_sizes[0])
    if problem := prices.too_much(least, most):
        raise BudgetError(
            f"max-memory: {problem}, with codes of {least.pq_bytes} bytes; allow that many, fix smaller codes with "
            "--pq-bytes, or give a smaller --navigation"
        )
    return _within(space, lambda one: prices.too_much(one, most), left_out)


def _within(space: Space, problem: Callable[[Candidate], str | None], left_out: list[str]) -> Space:
    """Return `space` without what has a `problem`: sizes with the least degree, degrees with the least size, pairs."""
    graphs, unfit = space.graphs()[:: len(space.alphas)], set(space.unfit)

    def fits(graph: GraphCandidate, size: int, words: str) -> bool:
        if why := problem(Candidate(graph, size)):
            left_out.append(f"{words}: {why}")
        return not why

    sizes = [size for size in space.pq_sizes if fits(graphs[0], size, f"codes of {size} bytes")]
    graphs = [graph for graph in graphs if fits(graph, sizes[0], f"R={graph.max_degree}")]
    for graph, size in product(graphs[1:], sizes[1:]):
        pair = graph.max_degree, size
        if pair not in unfit and not fits(graph, size, f"R={pair[0]} with codes of {size} bytes"):
            unfit.add(pair)
    return replace(
        space,
        degrees=tuple(graph.max_degree for graph in graphs),
        pq_sizes=tuple(sizes),
        usual_pq=max((size for size in sizes if size <= space.usual_pq), default=sizes[0]),
        unfit=frozenset(unfit),
    )


def sample_within(
    spec: BuildSpec, source: VectorSource, space: Space, wanted: int, least: int
) -> tuple[int, int]:
    """Return the most vectors, up to `wanted`, that trials of one worker take in one piece in the job's memory.

    The second number is of the workers, at most the job's, that trials then can have; results do not depend on it.

    Raises
    ------
    BudgetError
        If the vectors are fewer than `least`.
    """
    p = graph_parameters(spec.parameters)
    widest = p.model_copy(
        update={"max_degree": max(space.degrees), "pq_bytes": max(space.pq_sizes), "shard_vectors": None}
    )

    def need(size: int, workers: int) -> int:
        shape = GraphShape(*stored_vectors(source, p.metric, size), 0.0, widest)
        stages = memory.stage_bytes(shape, spec.memory, workers)
        return FIXED_BYTES + max(stages.values())

    size, workers = wanted, spec.workers
    while size >= least and need(size, 1) > spec.memory:
        size -= max(1, size // 8)
    if size < least:
        raise BudgetError(
            f"memory: a sample of {least:,} vectors with R={max(space.degrees)} needs {need(least, 1):,} bytes, the "
            f"budget is {spec.memory:,}; give that many with --memory, or fix a smaller -R"
        )
    while need(size, workers) > spec.memory:
        workers -= 1
    return size, workers
