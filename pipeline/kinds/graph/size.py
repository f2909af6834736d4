"""What a build of a graph knows before its first stage."""

from __future__ import annotations

from indexmill.formats.errors import ConfigError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.common import ingest
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.graph import budget, memory
from indexmill.pipeline.kinds.graph.recipe import GraphRecipe
from indexmill.pipeline.kinds.graph.regions.recipe import graph_recipe
from indexmill.pipeline.kinds.kind import Blueprint
from indexmill.pipeline.kinds.scratch import needed_scratch, side_columns
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.spec import BuildSpec, Parameters


class GraphBlueprint(Blueprint):
    """The build of a graph; see `Blueprint`.

    Attributes
    ----------
    shape : budget.Shape
        With parameters that say how large shards are.

    Raises
    ------
    ConfigError, InputError
        If the metric does not suit the input.
    BudgetError
        If no build fits.
    """

    def __init__(self, spec: BuildSpec, source: VectorSource, p: Parameters) -> None:
        super().__init__(spec, source)
        ingest.check_metric(source, p.metric)
        dtype = ingest.stored_dtype(source.dtype, p.metric)
        if p.build_codes != "none" and dtype.kind != "f":
            raise ConfigError(
                f"build_codes: {p.build_codes} goes with float vectors, {source.paths[0]} holds {dtype}, a byte a "
                "component as well; leave it out"
            )
        dim = source.dim + (p.metric == "ip")
        asked = budget.Shape(source.n_vectors, dim, dtype, side_columns(source).ids, p)
        self.shape = memory.fit_shards(asked, spec.memory, spec.executor, spec.workers)
        memory.check_memory(self.shape, spec.memory, spec.executor, spec.workers, asked)

    def needed_scratch(self) -> tuple[int, dict[str, int]]:
        """See `Blueprint.needed_scratch`."""
        return needed_scratch(self.shape, side_columns(self.source), self.spec.memory, self.keep)

    def scratch_bound(self, need: int) -> int:
        """See `Blueprint.scratch_bound`."""
        return budget.scratch_bound(self.shape)

    def recipe(self, mill: Mill, first: Stage, summary: InputSummary) -> GraphRecipe:
        """See `Blueprint.recipe`."""
        return graph_recipe(mill, first, summary, self.shape, self.spec.memory)
