"""Every kind of index, by the name that jobs and manifests give it.

Help pages import this module for the parameters; the size of a kind, which loads its stages, is imported when a build
asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indexmill.pipeline.kinds.common.parameters import KindParameters
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.ivf.parameters import IvfParameters
from indexmill.pipeline.kinds.kind import Kind
from indexmill.pipeline.kinds.lsh.parameters import LshParameters

if TYPE_CHECKING:
    from indexmill.pipeline.kinds.size import Size

#: The kind of a job that names none.
DEFAULT_KIND = "graph"


def _graph() -> type[Size[Any]]:
    from indexmill.pipeline.kinds.graph.size import GraphSize

    return GraphSize


def _lsh() -> type[Size[Any]]:
    from indexmill.pipeline.kinds.lsh.size import LshSize

    return LshSize


def _ivf() -> type[Size[Any]]:
    from indexmill.pipeline.kinds.ivf.size import IvfSize

    return IvfSize


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (Kind(Parameters, _graph), Kind(LshParameters, _lsh), Kind(IvfParameters, _ivf))
}


def kind_of(p: KindParameters) -> Kind:
    """Return the kind that parameters are of."""
    return KINDS[p.kind]


def warm_up() -> None:
    """Load the stages of every kind in a worker."""
    for kind in KINDS.values():
        kind.size()
