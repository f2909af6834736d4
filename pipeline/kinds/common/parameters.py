"""The base of the parameters of every kind, with the types and defaults that several kinds share."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict

#: Bytes of a PQ code, which stay in memory for every vector.
DEFAULT_PQ_BYTES = 32
#: Vectors that PQ and k-means are trained on.
DEFAULT_SAMPLE = 100_000

Metric = Literal["l2", "ip", "cosine"]
Compute = Literal["cpu", "cuda", "auto"]


class KindParameters(BaseModel):
    """Everything but the input that decides the bytes of an index; each kind adds its fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )

    #: Whether a job may name a file of centroids.
    takes_centroids: ClassVar[bool] = False
    #: Whether a sample of queries may shape an index.
    takes_query_sample: ClassVar[bool] = False
    #: Whether a column of labels may shape an index.
    takes_labels: ClassVar[bool] = False

    kind: str
    if TYPE_CHECKING:  # each kind declares them itself, where manifests have them
        metric: Metric
        seed: int

    @property
    def has_codes(self) -> bool:
        """Whether vectors are coded, alike in all parts of a set."""
        return False

    @property
    def has_codebook(self) -> bool:
        """Whether the codes have a codebook, which is trained."""
        return False

    @property
    def computes_on(self) -> Compute:
        """Where matrix products run: on the processor, unless the kind has a parameter `compute`."""
        where: Compute = getattr(self, "compute", "cpu")
        return where

    def computing_on(self, where: Compute) -> Self:
        """Return these parameters with another `compute`."""
        return self if where == self.computes_on else self.model_copy(update={"compute": where})
