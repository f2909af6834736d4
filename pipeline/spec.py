"""One build: its input, its output, the parameters of its kind and how it runs.

A string below a field is its description, which help pages show.

Job files, the command line and the Python API all end in a `BuildSpec`. Its `parameters` decide the bytes of the index.
Where things lie and how they run (`out`, `workers`, `executor` ...) stands beside them, because it must never reach a
hash. `memory` reaches one in a single way: a build that does not fit is cut into shards, and the resolved
`shard_vectors` is a parameter.
"""

from __future__ import annotations

from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from indexmill.formats.location import path_or_url, work_folder
from indexmill.pipeline.kinds import registry
from indexmill.pipeline.kinds.common.parameters import Compute, KindParameters
from indexmill.pipeline.kinds.common.sizes import Bytes, parse_size
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.ivf.parameters import IvfParameters
from indexmill.pipeline.kinds.lsh.parameters import LshParameters
from indexmill.pipeline.kinds.registry import DEFAULT_KIND

__all__ = [
    "DEFAULT_MEMORY",
    "KINDS",
    "AnyParameters",
    "BuildSpec",
    "Bytes",
    "ExecutorName",
    "IvfParameters",
    "LshParameters",
    "Parameters",
    "parse_size",
]

#: Memory budget of a build when none is stated.
DEFAULT_MEMORY = 8 << 30

ExecutorName = Literal["local", "ray"]

#: The parameters of each kind of index.
KINDS: dict[str, type[KindParameters]] = {name: kind.parameters for name, kind in registry.KINDS.items()}


def _kind_of(parameters: Any) -> str:
    return str(parameters.kind if hasattr(parameters, "kind") else parameters.get("kind", DEFAULT_KIND))


if TYPE_CHECKING:
    AnyParameters = KindParameters
else:
    AnyParameters = Annotated[
        reduce(or_, (Annotated[model, Tag(name)] for name, model in KINDS.items())), Discriminator(_kind_of)
    ]


class BuildSpec(BaseModel):
    """One build: input, output, parameters and how to run it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    input: Annotated[
        list[str], BeforeValidator(lambda v: [v] if isinstance(v, str) else v), Field(min_length=1)
    ]
    """Vectors: Parquet, Arrow, npy, fvecs, bvecs, fbin, f16bin, u8bin, i8bin, HDF5; a path, glob or URL. May repeat."""
    column: str | None = None
    """Vector column; default: the only one that fits."""
    id_column: str | None = None
    """Column of user ids."""
    metadata_columns: list[str] = []
    """Columns to keep beside the vectors."""
    out: Annotated[str, AfterValidator(partial(path_or_url, name="out"))]
    """Index directory to write, or its URL, such as s3://bucket/index."""
    centroids: str | None = None
    """Centroids to use, in any input format; default: trained."""
    parts: Annotated[int, Field(ge=2, le=1000)] | None = None
    """Build a set of so many indexes, each of a part of the vectors, and a router to them."""
    query_sample: str | None = None
    """graph: queries like those to come, in any input format, which shape edges and codes where they are unlike the
    vectors."""
    query_column: str | None = None
    """Vector column of the query sample; default: the only one that fits."""
    label_column: Annotated[str, Field(min_length=1)] | None = None
    """graph, with codes_on_page: a metadata column of labels. Edges stay within each label, so that searches for one
    read fewer pages."""
    parameters: AnyParameters = KINDS[DEFAULT_KIND].model_validate({})
    memory: Bytes = DEFAULT_MEMORY
    """Memory budget, such as 500MB."""
    scratch: Bytes | None = None
    """Most bytes in the work directory; default: what such a build may need."""
    workers: Annotated[int, Field(ge=1, le=1024)] = 2
    """Threads, on each machine."""
    executor: ExecutorName = "local"
    """Where tasks run."""
    ray_address: str | None = None
    """Ray cluster to join; default: RAY_ADDRESS, else one started on this machine."""
    work: Annotated[str, AfterValidator(work_folder)] | None = None
    """Directory that keeps finished stages for builds that share them; default: removed at the end."""
    force: bool = False
    """Replace an output that exists."""

    @model_validator(mode="after")
    def _out_is_not_an_input(self) -> BuildSpec:
        if self.out in self.input:
            raise ValueError("out: is also an input; name another directory")
        return self

    @model_validator(mode="after")
    def _a_gpu_goes_with_tasks_here(self) -> BuildSpec:
        if self.executor == "ray" and self.parameters.computes_on == "cuda":
            raise ValueError(
                "compute: cuda goes with the local executor, tasks of Ray ask for no GPU; take cpu"
            )
        return self

    @model_validator(mode="after")
    def _only_lists_have_centroids(self) -> BuildSpec:
        if self.centroids is not None and not self.parameters.takes_centroids:
            takers = " or ".join(name for name, model in KINDS.items() if model.takes_centroids)
            raise ValueError(
                f"centroids: go with kind {takers}, not with {self.parameters.kind}; leave them out"
            )
        return self

    @model_validator(mode="after")
    def _only_graphs_have_a_query_sample(self) -> BuildSpec:
        if self.query_column is not None and self.query_sample is None:
            raise ValueError("query_column: goes with query_sample; name the queries it belongs to")
        if self.query_sample is not None and not self.parameters.takes_query_sample:
            takers = " or ".join(name for name, model in KINDS.items() if model.takes_query_sample)
            raise ValueError(
                f"query_sample: goes with kind {takers}, not with {self.parameters.kind}; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _only_graphs_have_labels(self) -> BuildSpec:
        if self.label_column is not None and not self.parameters.takes_labels:
            takers = " or ".join(name for name, model in KINDS.items() if model.takes_labels)
            raise ValueError(
                f"label_column: goes with kind {takers}, not with {self.parameters.kind}; leave it out"
            )
        return self

    def computing_on(self, where: Compute) -> BuildSpec:
        """Return the job with another `compute`; the same object if it is that already."""
        p = self.parameters.computing_on(where)
        return self if p is self.parameters else self.model_copy(update={"parameters": p})
