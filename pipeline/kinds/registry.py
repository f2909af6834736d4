"""The blueprint of a job, by the kind of index that it builds."""

from __future__ import annotations

from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.graph.size import GraphBlueprint
from indexmill.pipeline.kinds.ivf.size import IvfBlueprint
from indexmill.pipeline.kinds.kind import Blueprint
from indexmill.pipeline.kinds.lsh.size import LshBlueprint
from indexmill.pipeline.spec import BuildSpec, IvfParameters, LshParameters


def blueprint(spec: BuildSpec, source: VectorSource) -> Blueprint:
    """Return the build of a job.

    Raises
    ------
    ConfigError, InputError
        If parameters and input do not go together.
    BudgetError
        If no build fits.
    """
    p = spec.parameters
    if isinstance(p, IvfParameters):
        return IvfBlueprint(spec, source, p)
    if isinstance(p, LshParameters):
        return LshBlueprint(spec, source, p)
    return GraphBlueprint(spec, source, p)


def warm_up() -> None:
    """Do nothing: a worker that calls this has imported the stages of every kind."""
