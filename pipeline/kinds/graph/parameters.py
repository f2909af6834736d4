"""Parameters of a graph index."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from indexmill.formats.graph.codes import MAX_BYTES
from indexmill.pipeline.kinds.common.parameters import (
    DEFAULT_PQ_BYTES,
    DEFAULT_SAMPLE,
    Compute,
    KindParameters,
    Metric,
)
from indexmill.pipeline.kinds.common.sizes import SearchMemory

#: DiskANN's published setting for SIFT-like data; 32 neighbours let 15 nodes of 128 bytes share a page.
DEFAULT_MAX_DEGREE = 32
#: Candidates kept while building; DiskANN recommends 75 to 200.
DEFAULT_BUILD_LIST_SIZE = 75
#: Pruning slack of Vamana; 1.2 is the paper's value.
DEFAULT_ALPHA = 1.2
#: Times Vamana inserts every vertex; the paper's second pass takes as long again.
DEFAULT_PASSES = 1
#: Entry-vertex candidates (DiskANN++ section III); 1,024 centroids of 128 floats are 512 KiB.
DEFAULT_ENTRIES = 1024
#: Share of the vectors in the navigation graph: PipeANN's and Starling's 1%, 136 bytes a sampled vector at most.
DEFAULT_NAVIGATION = 0.01
#: Share of the vectors that belong to a second shard: those nearest to a border.
DEFAULT_OVERLAP = 0.25

Order = Literal[
    "star", "identity", "random", "breadth-first", "bnp", "bnf", "kmeans-pages", "gorder", "gorder-windowed", "margo",
    "graph-bisection", "restream", "agglomerative",
]  # fmt: skip
#: Orders that earlier versions had, and what took their place.
REPLACED_ORDERS = {"polish": "agglomerative"}
NodeDtype = Literal["same", "float16", "sq16", "sq8"]
#: Types of nodes beside which exact vectors can be kept.
CODED_NODES = ("sq8", "sq16")
BuildCodes = Literal["none", "sq8"]
Builder = Literal["auto", "partition", "vamana"]

#: Parameters of insertions, which `vamana` alone makes.
_OF_INSERTIONS = ("passes", "build_codes")
#: Types of vectors that each builder takes as they are; `builders.distances.comparable` converts the others for it.
TAKEN_TYPES: dict[str, tuple[str, ...]] = {
    "vamana": ("float32", "float16", "uint8", "int8"),
    "partition": ("float32", "float16", "uint8"),
}


class Parameters(KindParameters):
    """Everything but the input that decides the bytes of a graph index."""

    takes_query_sample: ClassVar[bool] = True
    takes_labels: ClassVar[bool] = True

    kind: Literal["graph"] = "graph"
    """Kind of index: a graph, hash tables, or inverted lists for joins."""
    builder: Builder = "auto"
    """How the graph is built: vamana, by searches; partition, faster, by comparing all pairs of small sets; auto,
    partition where its memory fits, else vamana."""
    max_degree: Annotated[int, Field(alias="R", ge=2, le=512)] = DEFAULT_MAX_DEGREE
    """Most neighbours of a vertex. Default: 48, or 32 where the index would grow by more than a quarter with 48, and
    up to 64 where they fit on the page; 64 to 128 of embeddings with codes_on_page."""
    build_list_size: Annotated[int, Field(alias="L", ge=4, le=4096)] = DEFAULT_BUILD_LIST_SIZE
    """vamana: candidates kept while building."""
    alpha: Annotated[float, Field(ge=1.0, le=4.0)] = DEFAULT_ALPHA
    """Pruning slack."""
    saturate: bool = True
    """Fill neighbour lists that pruning left short with the nearest pruned candidates, which saves page reads."""
    passes: Annotated[int, Field(ge=1, le=2)] = DEFAULT_PASSES
    """vamana: how often every vertex is inserted, 1 or 2; with 2, as in the paper, the first pass has no slack."""
    build_codes: BuildCodes = "none"
    """vamana: codes that searches of the build compare instead of the vectors; sq8, a byte a component, is faster
    for float vectors."""
    pq_bytes: Annotated[int, Field(ge=1, le=MAX_BYTES)] = DEFAULT_PQ_BYTES
    """Bytes of a PQ code. Default: of a graph as many as `search_memory` allows; of lists 64 for floats of 256 or more
    components, else 32."""
    pq_rotation: Literal["none", "opq"] = "none"
    """Rotation of the vectors before they are coded; opq makes codes more exact. Default: of a graph measured on a
    sample; of lists opq for floats of 256 to 1,536 components, else none."""
    codes_on_page: bool = False
    """Write the codes of its neighbours into each node, so that searches hold no codes, and no checksums, in memory."""
    search_memory: SearchMemory | None = None
    """Memory that searches may hold: all of it, such as 2GB, or of a code, such as 64/vector. Default: 64/vector for
    floats of 256 or more components, else 32/vector."""
    order: Order = "agglomerative"
    """Star where the default does not fit the memory, and for float16 by l2. Order of the vertices on the pages."""
    node_dtype: NodeDtype = "same"
    """Default: measured on a sample. Type of the vectors on the pages, that of the input or a smaller one."""
    keep_vectors: bool = False
    """graph, ivf: keep exact vectors beside codes, so that searches can measure candidates by them; of a graph those
    for which sq8 or sq16 nodes leave the answer open."""
    metric: Metric = "l2"
    """Euclidean distance, inner product or cosine."""
    entries: Annotated[int, Field(ge=1, le=65536)] = DEFAULT_ENTRIES
    """Entry vertices that searches choose their start from."""
    navigation: Annotated[float, Field(ge=0, le=0.1)] = DEFAULT_NAVIGATION
    """Share of the vectors in the navigation graph; 0 for none."""
    sample_vectors: Annotated[int, Field(ge=256)] = DEFAULT_SAMPLE
    """Vectors that codes and centroids are trained on."""
    shard_vectors: Annotated[int, Field(ge=64)] | None = None
    """Vectors of a shard; default: as many as the memory allows."""
    overlap: Annotated[float, Field(ge=0, le=1)] = DEFAULT_OVERLAP
    """Share of the vectors that belong to a second shard."""
    compute: Annotated[Compute, Field(alias="device")] = "cpu"
    """graph, ivf: processor that compares leaves and makes centroids and codes; cuda: a GPU, by CuPy, with other bytes
    as a result; auto: a GPU if there is one."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Random seed; equal input, parameters and seed give equal bytes."""

    @property
    def has_codes(self) -> bool:
        """Whether vectors are coded, alike in all parts of a set: those of a graph always are."""
        return True

    @property
    def has_codebook(self) -> bool:
        """Whether the codes have a codebook, which is trained: they always do."""
        return True

    @property
    def of_insertions(self) -> list[str]:
        """Names of the parameters that ask for `vamana`: those of insertions which differ from their default."""
        fields = type(self).model_fields
        return [name for name in _OF_INSERTIONS if getattr(self, name) != fields[name].default]

    @field_validator("order", mode="before")
    @classmethod
    def _orders_of_earlier_versions(cls, order: object) -> object:
        return REPLACED_ORDERS.get(order, order) if isinstance(order, str) else order

    @model_validator(mode="after")
    def _codes_on_page_leave_nothing_in_memory(self) -> Parameters:
        if self.codes_on_page and self.keep_vectors:
            raise ValueError(
                "keep_vectors: its checksums take 4 bytes a page in memory, and codes_on_page keeps memory independent "
                "of the number of vectors; leave one of the two out"
            )
        if self.codes_on_page and "navigation" not in self.model_fields_set:
            object.__setattr__(self, "navigation", 0.0)  # the model is frozen
        if self.codes_on_page and self.navigation:
            raise ValueError(
                "navigation: a navigation graph is searched by codes in memory, and with codes_on_page there are none; "
                "leave one of the two out"
            )
        return self

    @model_validator(mode="after")
    def _only_vamana_inserts(self) -> Parameters:
        if self.builder == "partition":
            for name in self.of_insertions:
                raise ValueError(
                    f"{name}: goes with builder vamana, partition inserts no vertices; leave it out"
                )
        return self

    @model_validator(mode="after")
    def _codes_leave_something_to_keep(self) -> Parameters:
        if self.keep_vectors and "node_dtype" in self.model_fields_set and self.node_dtype not in CODED_NODES:
            raise ValueError(
                f"keep_vectors: goes with node_dtype {' or '.join(CODED_NODES)}, nodes of type {self.node_dtype} need "
                "no exact vectors beside them; leave one of the two out"
            )
        return self


def graph_parameters(p: KindParameters) -> Parameters:
    """Return the parameters of a job that is known to be one of a graph."""
    assert isinstance(p, Parameters)
    return p
