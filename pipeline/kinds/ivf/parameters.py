"""Parameters of an IVF index."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from indexmill.formats.graph.codes import MAX_BYTES
from indexmill.formats.ivf.centroids import Codec
from indexmill.formats.ivf.rabitq import MAX_BITS
from indexmill.pipeline.kinds.common.parameters import (
    DEFAULT_PQ_BYTES,
    DEFAULT_SAMPLE,
    Compute,
    KindParameters,
    Metric,
)

#: Inverted lists of an IVF index: the cells of the Batch Similarity Search paper.
DEFAULT_LISTS = 4096
#: Bits a component of RaBitQ codes: half the bytes of sq8, and enough to rank without exact vectors.
DEFAULT_CODE_BITS = 4
#: Most lists of a build, whose centroids may be given.
MOST_LISTS = 1 << 20
#: How much farther than the nearest one the centroids of a vector's further lists may be.
DEFAULT_CLOSURE = 0.3


class IvfParameters(KindParameters):
    """Everything but the input and given centroids that decides the bytes of an IVF index."""

    takes_centroids: ClassVar[bool] = True

    kind: Literal["ivf"] = "ivf"
    lists: Annotated[int, Field(ge=1, le=MOST_LISTS)] = DEFAULT_LISTS
    """Inverted lists."""
    codec: Literal["flat", "sq8", "pq", "rabitq"] = "flat"
    """What lists hold: vectors as they are, a byte a component, PQ codes, or RaBitQ codes."""
    pq_bytes: Annotated[int, Field(ge=1, le=MAX_BYTES)] = DEFAULT_PQ_BYTES
    """Bytes of a PQ code. Default of a build: 64 for floats of 256 or more components, else 32."""
    pq_rotation: Literal["none", "opq"] = "none"
    """Rotation of the vectors before they are coded; opq makes codes more exact. Default of a build: opq for PQ codes
    of floats of 256 to 1,536 components, else none. A manifest that does not state it means none."""
    code_bits: Annotated[int, Field(ge=1, le=MAX_BITS)] = DEFAULT_CODE_BITS
    """Bits a component of RaBitQ codes."""
    batch_vectors: Annotated[int, Field(ge=64)] | None = None
    """Vectors of a batch; default: two batches fill half the memory of a join."""
    metric: Metric = "l2"
    sample_vectors: Annotated[int, Field(ge=256)] = DEFAULT_SAMPLE
    copies: Annotated[int, Field(ge=1, le=255)] = 1
    """Most lists that hold a vector, those near it on all sides."""
    closure: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = DEFAULT_CLOSURE
    """With copies: a further list's centroid is at most 1 + CLOSURE times as far as the nearest."""
    keep_vectors: bool = False
    compute: Annotated[Compute, Field(alias="device")] = "cpu"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1

    @property
    def list_codec(self) -> Codec:
        """The codec of the lists, as their files name it."""
        return "opq" if self.pq_rotation == "opq" else self.codec

    @property
    def has_codes(self) -> bool:
        """Whether vectors are coded, alike in all parts of a set."""
        return self.codec != "flat"

    @property
    def has_codebook(self) -> bool:
        """Whether the codes have a codebook, which is trained."""
        return self.codec == "pq"

    @model_validator(mode="after")
    def _product_codes_are_rotated(self) -> IvfParameters:
        if self.pq_rotation != "none" and self.codec != "pq":
            raise ValueError(
                f"pq_rotation: {self.codec} lists have no PQ codes to rotate; leave it out, or choose codec pq"
            )
        return self

    @model_validator(mode="after")
    def _flat_lists_are_the_vectors(self) -> IvfParameters:
        if self.keep_vectors and self.codec == "flat":
            raise ValueError(
                "keep_vectors: flat lists hold the vectors as they are; leave it out, or choose a codec"
            )
        return self
