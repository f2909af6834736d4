"""Every kind of index, by the name that jobs and manifests give it."""

from __future__ import annotations

from indexmill.pipeline.kinds.common.parameters import KindParameters
from indexmill.pipeline.kinds.graph.size import GRAPH
from indexmill.pipeline.kinds.ivf.size import IVF
from indexmill.pipeline.kinds.kind import Kind
from indexmill.pipeline.kinds.lsh.size import LSH

KINDS: dict[str, Kind] = {kind.name: kind for kind in (GRAPH, LSH, IVF)}


def kind_of(p: KindParameters) -> Kind:
    """Return the kind that parameters are of."""
    return KINDS[p.kind]


def warm_up() -> None:
    """Load the stages of every kind in a worker: importing this module is all that it takes."""
