"""What a build of an IVF index knows before its first stage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.sources.source import VectorSource, read_queries
from indexmill.pipeline.kinds.common import ingest
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.metric import unit
from indexmill.pipeline.kinds.ivf import memory
from indexmill.pipeline.kinds.ivf.recipe import IvfRecipe
from indexmill.pipeline.kinds.kind import Blueprint
from indexmill.pipeline.kinds.scratch import played, side_columns
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.spec import BuildSpec, IvfParameters


class IvfBlueprint(Blueprint):
    """The build of an IVF index; see `Blueprint`.

    Attributes
    ----------
    shape : IvfShape
        With parameters that say how large batches are.
    given : float32 array, shape (n_lists, dim), or None
        Centroids to use in place of trained ones.

    Raises
    ------
    ConfigError, InputError
        If the metric or given centroids do not suit the input.
    BudgetError
        If the build does not fit.
    """

    def __init__(self, spec: BuildSpec, source: VectorSource, p: IvfParameters) -> None:
        super().__init__(spec, source)
        ingest.check_metric(source, p.metric)
        dtype = ingest.stored_dtype(source.dtype, p.metric)
        self.given = _given_centroids(spec.centroids, source, p) if spec.centroids is not None else None
        resolved = p if self.given is None else p.model_copy(update={"lists": len(self.given)})
        dim = source.dim + (p.metric == "ip")
        asked = memory.IvfShape(source.n_vectors, dim, dtype, side_columns(source).ids, resolved)
        self.shape = memory.with_batches(asked, spec.memory)
        memory.check_memory(self.shape, spec.memory, spec.executor, spec.workers)

    def needed_scratch(self) -> tuple[int, dict[str, int]]:
        """See `Blueprint.needed_scratch`."""
        sizes = memory.stage_files(self.shape, side_columns(self.source))
        return played(self.recipe, sizes, (self.shape.n, self.shape.dim, str(self.shape.dtype)), self.keep)

    def scratch_bound(self, need: int) -> int:
        """See `Blueprint.scratch_bound`."""
        return memory.scratch_bound(self.shape)

    def recipe(self, mill: Mill, first: Stage, summary: InputSummary) -> IvfRecipe:
        """See `Blueprint.recipe`."""
        return IvfRecipe(mill, first, summary, self.shape, self.spec.memory, self.given)


def _given_centroids(path: str, source: VectorSource, p: IvfParameters) -> NDArray[np.float32]:
    """Read centroids; under cosine they are taken as directions, as vectors are.

    Raises
    ------
    ConfigError, InputError
        If they do not suit the input.
    """
    if p.metric == "ip":
        raise ConfigError("centroids: ip adds a component to vectors that they lack; leave them out")
    given = read_queries(path).astype(np.float32)
    if given.shape[1] != source.dim:
        raise InputError(
            f"{path}: centroids of {given.shape[1]} dimensions, but the vectors have {source.dim}; name centroids that "
            "were trained on such vectors, or leave them out to have some trained"
        )
    if p.metric == "cosine" and not (given != 0).any(axis=1).all():
        raise InputError(f"{path}: a centroid is zero, which has no direction; leave it out")
    return unit(given) if p.metric == "cosine" else given
