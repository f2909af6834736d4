"""Memory, space and time of the hash tables of all vectors; see `Prices`."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.builders.lsh.solve import Solved
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.lsh.parameters import LshParameters, lsh_parameters
from indexmill.pipeline.kinds.lsh.shape import SolvedShape, output_bytes
from indexmill.pipeline.kinds.lsh.size import LshSize
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.choice import Cost
from indexmill.pipeline.tune.prices import Prices
from indexmill.pipeline.tune.tables.space import TableCandidate


class TablePrices(Prices[TableCandidate]):
    """Prices of candidates, for all vectors of a job; see `Prices`."""

    def __init__(self, spec: BuildSpec, source: VectorSource) -> None:
        super().__init__(spec, source)
        self._shapes: dict[TableCandidate, SolvedShape] = {}

    def parameters(self, candidate: TableCandidate) -> LshParameters:
        """See `Prices.parameters`."""
        return candidate.applied(lsh_parameters(self.spec.parameters))

    def size(self, candidate: TableCandidate) -> LshSize:
        """See `Prices.size`; the shape is kept, without the rows of the input that it was solved by."""
        size = LshSize(self.job(candidate), self.source)
        self._shapes[candidate] = size.shape
        return size

    def solved(self, candidate: TableCandidate) -> Solved:
        """Return the solved parameters of a candidate that `buildable` found, by the first rows."""
        return self._shapes[candidate].solved

    def cost(self, candidate: TableCandidate, reads: float) -> Cost:
        """See `Prices.cost`: tables are many times as large as all that searches hold, so space counts most.

        Memory is that of searches with vectors in memory.
        """
        shape = self._shapes[candidate]
        tables, functions = shape.tables, shape.solved.n_functions
        hashed = 4 * tables.n_tables * functions * (shape.dim + tables.n_radii + 2)
        vectors = shape.n * shape.row_format.vector_bytes
        memory, space = vectors + hashed + tables.bitmap_bytes, output_bytes(shape)
        return Cost(reads, memory, space, (space, memory))


def buildable(
    candidates: Sequence[TableCandidate], prices: TablePrices, left_out: list[str]
) -> list[TableCandidate]:
    """Return the candidates whose builds fit memory and disk; say of the others why not in `left_out`.

    Raises
    ------
    BudgetError, ConfigError
        That of the first one, if none fits.
    """
    refused = {one: error for one in candidates if (error := prices.refusal(one))}
    if len(refused) == len(candidates):
        raise refused[candidates[0]]
    left_out += [f"{one}: {error}" for one, error in refused.items()]
    return [one for one in candidates if one not in refused]
