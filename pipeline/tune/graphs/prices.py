"""Memory, space and time of the graph of all vectors; see `Prices`."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.common.shape import stored_vectors
from indexmill.pipeline.kinds.common.sizes import parse_search_memory
from indexmill.pipeline.kinds.graph.parameters import Parameters, graph_parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.size import GraphSize
from indexmill.pipeline.plan import Plan
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.choice import Cost
from indexmill.pipeline.tune.graphs.space import Candidate, CodeFormat, GraphCandidate, Space, usual_code
from indexmill.pipeline.tune.prices import Prices


class GraphPrices(Prices[Candidate]):
    """Prices of candidates, for all vectors of a job; see `Prices`."""

    def __init__(self, spec: BuildSpec, source: VectorSource) -> None:
        super().__init__(spec, source)
        self._plans: dict[GraphCandidate, Plan] = {}

    def parameters(self, candidate: Candidate) -> Parameters:
        """See `Prices.parameters`."""
        return candidate.applied(graph_parameters(self.spec.parameters))

    def size(self, candidate: Candidate) -> GraphSize:
        """See `Prices.size`; it is the same on a GPU, which need not be here."""
        return GraphSize(self.job(candidate).computing_on("cpu"), self.source)

    def cost(self, candidate: Candidate, reads: float) -> Cost:
        """See `Prices.cost`: memory counts most, then space, then the time of the build.

        That time grows with the build list and the degree.
        """
        size, graph = self.size(candidate), candidate.graph
        memory, space = size.shape.held_bytes, size.needed_scratch()[1]["emit"]
        return Cost(reads, memory, space, (memory, space, graph.build_list_size, graph.max_degree))

    def refusal(self, candidate: Candidate) -> BudgetError | ConfigError | None:
        """See `Prices.refusal`; also why it cannot be searched in the memory that searches may hold."""
        p = self.parameters(candidate)
        if p.search_memory is not None:
            limit = parse_search_memory(p.search_memory)
            held = GraphShape(*stored_vectors(self.source, p.metric), 0.0, p).held_bytes
            if held > limit.bytes and not limit.per_vector:
                return BudgetError(
                    f"searches would hold {held:,} bytes, more than --search-memory {p.search_memory}"
                )
        return super().refusal(candidate)

    def plan(self, candidate: Candidate) -> Plan:
        """See `Prices.plan`; candidates of one graph share it, for codes hardly change it."""
        if candidate.graph not in self._plans:
            self._plans[candidate.graph] = super().plan(candidate)
        return self._plans[candidate.graph]


def buildable(space: Space, prices: GraphPrices, left_out: list[str]) -> Space:
    """Return `space` without codes and degrees that cannot be built, or held in memory; say why in `left_out`.

    Codes are tried with the least degree, degrees with the smallest codes, then the other pairs.

    Raises
    ------
    BudgetError, ConfigError
        If not even the smallest can.
    """
    graphs = space.graphs()[:: len(space.alphas)]
    if error := prices.refusal(Candidate(graphs[0], space.codes[0])):
        raise error

    def fits(graph: GraphCandidate, code: CodeFormat, words: str) -> bool:
        if why := prices.refusal(Candidate(graph, code)):
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
