"""Memory, space and time of the index of all vectors, as `plan` predicts them."""

from __future__ import annotations

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
from indexmill.pipeline.tune.space import Candidate, Code, GraphCandidate, Space, usual_code


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

    def plan(self, candidate: Candidate) -> Plan:
        """Return the plan of the build; candidates of one graph share it, for codes hardly change it."""
        if candidate.graph not in self._plans:
            self._plans[candidate.graph] = make_plan(self.job(candidate), self._source)
        return self._plans[candidate.graph]

    def _size(self, candidate: Candidate) -> GraphSize:
        job = self.job(candidate).computing_on("cpu")  # sizes are the same on a GPU, which need not be here
        return GraphSize(job, self._source)


def buildable(space: Space, prices: Prices, left_out: list[str]) -> Space:
    """Return `space` without codes and degrees that cannot be built, or held in memory; say why in `left_out`.

    Codes are tried with the least degree, degrees with the smallest codes, then the other pairs.

    Raises
    ------
    BudgetError, ConfigError
        If not even the smallest can.
    """
    graphs = space.graphs()[:: len(space.alphas)]
    prices.check_fits(Candidate(graphs[0], space.codes[0]))

    def fits(graph: GraphCandidate, code: Code, words: str) -> bool:
        if why := prices.why_not(Candidate(graph, code)):
            left_out.append(f"{words}: {why}")
        return not why

    codes = [code for code in space.codes if fits(graphs[0], code, f"codes of {code.pq_bytes} bytes")]
    graphs = [graph for graph in graphs if fits(graph, codes[0], f"R={graph.max_degree}")]
    unfit = {
        (graph.max_degree, code.pq_bytes)
        for graph, code in product(graphs[1:], codes[1:])
        if not fits(graph, code, f"R={graph.max_degree} with codes of {code.pq_bytes} bytes")
    }
    return replace(
        space,
        degrees=tuple(graph.max_degree for graph in graphs),
        codes=tuple(codes),
        usual=usual_code(codes, space.usual.pq_bytes),
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
        update={"max_degree": max(space.degrees), **space.largest_code()._asdict(), "shard_vectors": None}
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
