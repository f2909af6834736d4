"""Memory, space and time of the hash tables of all vectors, as `plan` predicts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from indexmill.builders.lsh.solve import Solved
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.build import work_directory
from indexmill.pipeline.kinds.lsh.parameters import LshParameters, lsh_parameters
from indexmill.pipeline.kinds.lsh.shape import SolvedShape, output_bytes
from indexmill.pipeline.kinds.lsh.size import LshSize
from indexmill.pipeline.plan import Plan, make_plan
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.tables.space import TableCandidate


@dataclass(frozen=True)
class TableCost:
    """Costs of hash tables of all vectors that do not depend on the speed of a machine.

    Attributes
    ----------
    reads : float
        Work of a query that has the quality that is wanted: reads, and distances by their bytes as reads. Infinite
        where the quality is not reached.
    index_bytes : int
        With the vectors.
    memory_bytes : int
        Of searches with vectors in memory.
    """

    reads: float
    index_bytes: int
    memory_bytes: int

    @property
    def price(self) -> tuple[int, int]:
        """The price of little work: tables are many times as large as all that searches hold, so space counts most."""
        return self.index_bytes, self.memory_bytes


class TablePrices:
    """Prices of candidates, for all vectors of a job.

    Parameters
    ----------
    spec : BuildSpec
    source : VectorSource
    """

    def __init__(self, spec: BuildSpec, source: VectorSource) -> None:
        self._spec, self._source = spec, source
        self._shapes: dict[TableCandidate, SolvedShape] = {}

    def parameters(self, candidate: TableCandidate) -> LshParameters:
        """Return the parameters of a candidate."""
        return candidate.applied(lsh_parameters(self._spec.parameters))

    def job(self, candidate: TableCandidate) -> BuildSpec:
        """Return the job that builds a candidate."""
        return self._spec.model_copy(update={"parameters": self.parameters(candidate)})

    def buildable(self, candidates: Sequence[TableCandidate], left_out: list[str]) -> list[TableCandidate]:
        """Return the candidates whose builds fit memory and disk; say of the others why not in `left_out`.

        Raises
        ------
        BudgetError, ConfigError
            That of the first one, if none fits.
        """
        refused: list[BudgetError | ConfigError] = []
        for one in candidates:
            try:
                size = LshSize(self.job(one), self._source)
                size.check_space(work_directory(self._spec), 0)
                self._shapes[one] = size.shape
            except (BudgetError, ConfigError) as error:
                refused.append(error)
                left_out.append(f"{one}: {error}")
        if not self._shapes:
            raise refused[0]
        return [one for one in candidates if one in self._shapes]

    def solved(self, candidate: TableCandidate) -> Solved:
        """Return the solved parameters of a buildable candidate, by the first rows."""
        return self._shapes[candidate].solved

    def cost(self, candidate: TableCandidate, work: float) -> TableCost:
        """Return the costs of a buildable candidate whose searches take so much work."""
        shape = self._shapes[candidate]
        tables, functions = shape.tables, shape.solved.n_functions
        hashed = 4 * tables.n_tables * functions * (shape.dim + tables.n_radii + 2)
        vectors = shape.n * shape.row_format.vector_bytes
        return TableCost(work, output_bytes(shape), vectors + hashed + tables.bitmap_bytes)

    def plan(self, candidate: TableCandidate) -> Plan:
        """Return the plan of the build."""
        return make_plan(self.job(candidate), self._source)
