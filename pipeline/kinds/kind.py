"""A kind of index: its parameters in a job, and the size of its builds.

To add a kind, copy the folder of one, and name the copy in `registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from indexmill.pipeline.kinds.common.parameters import KindParameters

if TYPE_CHECKING:
    from indexmill.formats.sources.source import VectorSource
    from indexmill.pipeline.kinds.size import Job, Size


@dataclass(frozen=True)
class Kind:
    """A kind of index.

    Attributes
    ----------
    parameters : type
        Its part of a job, which has the name of the kind.
    size : callable
        Imports and returns the class of its `Size`.
    """

    parameters: type[KindParameters]
    size: Callable[[], type[Size[Any]]]

    @property
    def name(self) -> str:
        """The name in job files and manifests."""
        return str(self.parameters.model_fields["kind"].default)

    def resolve(self, job: Job, source: VectorSource) -> Size[Any]:
        """Return the size of a job, whose memory settles shards, batches and tables; raises what `Size` raises."""
        return self.size()(job, source)
