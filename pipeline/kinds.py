"""What differs between builds of the kinds of index before their first stage: sizes, scratch space and recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.source import VectorSource, read_queries
from indexmill.pipeline import budget, ingest, ivf_budget, needs
from indexmill.pipeline.ingest import InputSummary
from indexmill.pipeline.ivf_recipe import IvfRecipe
from indexmill.pipeline.metric import unit
from indexmill.pipeline.recipe import GraphRecipe
from indexmill.pipeline.recipe_base import Recipe
from indexmill.pipeline.scratch import needed_scratch, played, side_columns
from indexmill.pipeline.spec import BuildSpec, IvfParameters
from indexmill.pipeline.stages import Mill, Stage


class Blueprint(Protocol):
    """A build whose sizes are known and found to fit its memory."""

    def needed_scratch(self) -> int:
        """Return the most bytes that the work directory will hold."""
        ...

    def scratch_bound(self) -> int:
        """Return the most bytes that it may hold where the job does not say."""
        ...

    def recipe(self, mill: Mill, first: Stage, summary: InputSummary) -> Recipe:
        """Return the stages after ingest."""
        ...


def blueprint(spec: BuildSpec, source: VectorSource) -> Blueprint:
    """Return the build of a job.

    Raises
    ------
    ConfigError, InputError
        If the metric or given centroids do not suit the input.
    BudgetError
        If no build fits.
    """
    if isinstance(spec.parameters, IvfParameters):
        return _IvfBlueprint(spec, source, *_resolve_ivf(spec, spec.parameters, source))
    return _GraphBlueprint(spec, source, resolve_graph(spec, source))


def resolve_graph(spec: BuildSpec, source: VectorSource) -> budget.Shape:
    """Return the shape of a graph build whose parameters say how large its shards are, found to fit its memory.

    Raises
    ------
    ConfigError, InputError
        If it is another kind of index, or the metric does not suit the input.
    BudgetError
        If no build fits.
    """
    p = spec.graph
    ingest.check_metric(source, p.metric)
    dtype = ingest.stored_dtype(source.dtype, p.metric)
    dim = source.dim + (p.metric == "ip")
    asked = budget.Shape(source.n_vectors, dim, dtype, side_columns(source).ids, p)
    shape = needs.fit_shards(asked, spec.memory, spec.executor, spec.workers)
    needs.check_memory(shape, spec.memory, spec.executor, spec.workers, asked)
    return shape


def _resolve_ivf(
    spec: BuildSpec, p: IvfParameters, source: VectorSource
) -> tuple[ivf_budget.IvfShape, NDArray[np.float32] | None]:
    ingest.check_metric(source, p.metric)
    dtype = ingest.stored_dtype(source.dtype, p.metric)
    given = _given_centroids(spec.centroids, source, p) if spec.centroids is not None else None
    resolved = p if given is None else p.model_copy(update={"lists": len(given)})
    dim = source.dim + (p.metric == "ip")
    asked = ivf_budget.IvfShape(source.n_vectors, dim, dtype, side_columns(source).ids, resolved)
    shape = ivf_budget.with_batches(asked, spec.memory)
    ivf_budget.check_memory(shape, spec.memory, spec.executor, spec.workers)
    return shape, given


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
            f"{path}: centroids of {given.shape[1]} dimensions, but the vectors have {source.dim}"
        )
    if p.metric == "cosine" and not (given != 0).any(axis=1).all():
        raise InputError(f"{path}: a centroid is zero, which has no direction; leave it out")
    return unit(given) if p.metric == "cosine" else given


@dataclass(frozen=True)
class _GraphBlueprint:
    spec: BuildSpec
    source: VectorSource
    shape: budget.Shape

    def needed_scratch(self) -> int:
        side, keep = side_columns(self.source), self.spec.work is not None
        return needed_scratch(self.shape, side, self.spec.memory, keep)[0]

    def scratch_bound(self) -> int:
        return budget.scratch_bound(self.shape)

    def recipe(self, mill: Mill, first: Stage, summary: InputSummary) -> Recipe:
        return GraphRecipe(mill, first, summary, self.shape, self.spec.memory)


@dataclass(frozen=True)
class _IvfBlueprint:
    spec: BuildSpec
    source: VectorSource
    shape: ivf_budget.IvfShape
    given: NDArray[np.float32] | None

    def needed_scratch(self) -> int:
        sizes = ivf_budget.stage_files(self.shape, side_columns(self.source))
        vectors = (self.shape.n, self.shape.dim, str(self.shape.dtype))

        def recipe(mill: Mill, first: Stage, summary: InputSummary) -> Stage:
            return self.recipe(mill, first, summary).certify

        return played(recipe, sizes, vectors, self.spec.work is not None)[0]

    def scratch_bound(self) -> int:
        return ivf_budget.scratch_bound(self.shape)

    def recipe(self, mill: Mill, first: Stage, summary: InputSummary) -> Recipe:
        return IvfRecipe(mill, first, summary, self.shape, self.spec.memory, self.given)
