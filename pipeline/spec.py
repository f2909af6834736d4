"""The parameters of one build: every name, default, limit and description, defined once.

A string below a field is its description, which help pages show.

Job files, the command line and the Python API all end in a `BuildSpec`. What decides bytes is in
`Parameters`; where things lie and how they run (`out`, `workers`, `executor` ...) is beside it, because it must
never reach a hash. `memory` reaches one in a single way: a build that does not fit is cut into shards, and the
resolved `shard_vectors` is a parameter.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from indexmill.formats.graph.codes import MAX_BYTES

#: DiskANN's published setting for SIFT-like data; 32 neighbours let 15 nodes of 128 bytes share a page.
DEFAULT_MAX_DEGREE = 32
#: Candidates kept while building; DiskANN recommends 75 to 200.
DEFAULT_BUILD_LIST_SIZE = 75
#: Pruning slack of Vamana; 1.2 is the paper's value.
DEFAULT_ALPHA = 1.2
#: Times Vamana inserts every vertex; the paper's second pass takes as long again.
DEFAULT_PASSES = 1
#: Bytes of a PQ code, which stay in memory for every vector.
DEFAULT_PQ_BYTES = 32
#: Entry-vertex candidates (DiskANN++ section III); 1,024 centroids of 128 floats are 512 KiB.
DEFAULT_ENTRIES = 1024
#: Share of the vectors in the navigation graph: PipeANN's and Starling's 1%, 136 bytes a sampled vector at most.
DEFAULT_NAVIGATION = 0.01
#: Vectors that PQ and k-means are trained on.
DEFAULT_SAMPLE = 100_000
#: Share of the vectors that belong to a second shard: those nearest to a border.
DEFAULT_OVERLAP = 0.25
#: Approximation ratio of E2LSH; the paper's.
DEFAULT_RATIO = 2.0
#: Bucket width in units of the radius: rho is least near it for a ratio of 2.
DEFAULT_WIDTH = 4.0
#: Scale of the functions in a compound hash; below 1 for fewer tables, which let more candidates through.
#: With this and the next one SIFT has an overall ratio near 1.05.
DEFAULT_GAMMA = 0.55
#: Probability that a vector within the radius shares a bucket with the query, unless the tables are counted out.
DEFAULT_SUCCESS = 0.8
#: Bytes of a bucket block: the least that NVMe devices read, and what the paper takes.
DEFAULT_BLOCK_BYTES: Literal[512] = 512
#: Inverted lists of an IVF index: the cells of the Batch Similarity Search paper.
DEFAULT_LISTS = 4096
#: How much farther than the nearest one the centroids of a vector's further lists may be.
DEFAULT_CLOSURE = 0.3
#: Memory budget of a build when none is stated.
DEFAULT_MEMORY = 8 << 30

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


def parse_size(value: Any) -> Any:
    """Turn a human size such as ``"8GiB"`` or ``"500 MB"`` into bytes; integers pass through.

    Raises
    ------
    ValueError
        If `value` is a string that is not a number with an optional unit.
    """
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", value.lower())
    if match is None:
        raise ValueError(f"{value!r} is not a size; write a number with a unit, such as 8GiB or 500MB")
    return int(float(match.group(1)) * _UNITS[match.group(2) or ""])


Size = Annotated[int, BeforeValidator(parse_size), Field(gt=0)]
Metric = Literal["l2", "ip", "cosine"]
Order = Literal[
    "star", "identity", "random", "breadth-first", "bnp", "bnf", "kmeans-pages", "gorder", "gorder-windowed", "margo",
    "graph-bisection", "restream", "polish",
]  # fmt: skip
NodeDtype = Literal["same", "float16", "sq16", "sq8"]
BuildCodes = Literal["none", "sq8"]
ExecutorName = Literal["local", "ray"]
Compute = Literal["cpu", "cuda", "auto"]

#: Builders whose kernels take vectors of every type; the others take them as `builders.distances.comparable` has them.
BUILDERS_OF_ALL_TYPES = ("vamana",)


class Parameters(BaseModel):
    """Everything but the input that decides the bytes of an index."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )

    kind: Literal["graph"] = "graph"
    """Kind of index: a graph, hash tables, or inverted lists for joins."""
    builder: Literal["vamana", "partition"] = "vamana"
    """How the graph is built, by searches or, faster, by comparing all pairs of small sets."""
    max_degree: Annotated[int, Field(alias="R", ge=2, le=512)] = DEFAULT_MAX_DEGREE
    """Most neighbours of a vertex."""
    build_list_size: Annotated[int, Field(alias="L", ge=4, le=4096)] = DEFAULT_BUILD_LIST_SIZE
    """Candidates kept while building."""
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
    """Bytes of a PQ code."""
    pq_rotation: Literal["none", "opq"] = "none"
    """Rotation of the vectors before they are coded; opq makes codes more exact."""
    order: Order = "star"
    """Order of the vertices on the pages."""
    node_dtype: NodeDtype = "same"
    """Type of the vectors on the pages, that of the input or a smaller one."""
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

    @model_validator(mode="after")
    def _only_vamana_inserts(self) -> Parameters:
        if self.builder != "vamana":
            for name, said in (("passes", self.passes != 1), ("build_codes", self.build_codes != "none")):
                if said:
                    raise ValueError(
                        f"{name}: goes with builder vamana, {self.builder} inserts no vertices; leave it out"
                    )
        return self


class LshParameters(BaseModel):
    """Everything but the input that decides the bytes of an LSH index; what is None is solved for."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )

    kind: Literal["lsh"] = "lsh"
    metric: Metric = "l2"
    ratio: Annotated[float, Field(alias="c", gt=1, le=16)] = DEFAULT_RATIO
    """Approximation ratio, and step between radii."""
    width: Annotated[float, Field(alias="w", ge=1e-3, le=1000)] = DEFAULT_WIDTH
    """Bucket width, in radii."""
    gamma: Annotated[float, Field(gt=0, le=4)] = DEFAULT_GAMMA
    """Scale of the functions of a compound hash; less: fewer tables, more candidates."""
    success: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="Probability that a vector within the radius shares a bucket with the query; decides the "
            f"number of tables. (default {DEFAULT_SUCCESS})",
        ),
    ] = None
    n_functions: Annotated[int | None, Field(alias="m", ge=1, le=256)] = None
    """Functions of a compound hash; default: solved."""
    n_tables: Annotated[int | None, Field(alias="L", ge=1, le=65535)] = None
    """Tables of each radius; default: solved."""
    n_radii: Annotated[int | None, Field(ge=1, le=256)] = None
    """Radii; default: up to the extent of the vectors."""
    first_radius: Annotated[float | None, Field(ge=1e-30, lt=1e30)] = None
    """Least radius; default: from sampled nearest distances."""
    candidates: Annotated[int | None, Field(alias="S", ge=1, lt=2**32)] = None
    """Most distances that a search computes in a radius; default: solved."""
    probes: Annotated[int, Field(ge=0, le=65535)] = 0
    """Further buckets of each table that a search looks at, for fewer tables."""
    hash_bits: Annotated[int | None, Field(ge=0, le=31)] = None
    """Bits that choose a bucket; default: as many as fill blocks."""
    block_bytes: Literal[128, 256, 512, 1024, 2048, 4096] = DEFAULT_BLOCK_BYTES
    """Bytes of a bucket block."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1

    @model_validator(mode="after")
    def _tables_are_said_once(self) -> LshParameters:
        if self.success is not None and self.n_tables is not None:
            raise ValueError(
                "success: decides the number of tables, which n_tables says too; give one of them"
            )
        return self


class IvfParameters(BaseModel):
    """Everything but the input and given centroids that decides the bytes of an IVF index."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )

    kind: Literal["ivf"] = "ivf"
    lists: Annotated[int, Field(ge=1, le=1 << 20)] = DEFAULT_LISTS
    """Inverted lists."""
    codec: Literal["flat", "sq8", "pq"] = "flat"
    """What lists hold: vectors as they are, a byte a component, or PQ codes."""
    pq_bytes: Annotated[int, Field(ge=1, le=MAX_BYTES)] = DEFAULT_PQ_BYTES
    batch_vectors: Annotated[int, Field(ge=64)] | None = None
    """Vectors of a batch; default: two batches fill half the memory of a join."""
    metric: Metric = "l2"
    sample_vectors: Annotated[int, Field(ge=256)] = DEFAULT_SAMPLE
    copies: Annotated[int, Field(ge=1, le=255)] = 1
    """Most lists that hold a vector, those near it on all sides."""
    closure: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = DEFAULT_CLOSURE
    """With copies: a further list's centroid is at most 1 + CLOSURE times as far as the nearest."""
    keep_vectors: bool = False
    """Keep exact vectors beside codes, so that searches can rerank."""
    compute: Annotated[Compute, Field(alias="device")] = "cpu"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1

    @model_validator(mode="after")
    def _flat_lists_are_the_vectors(self) -> IvfParameters:
        if self.keep_vectors and self.codec == "flat":
            raise ValueError(
                "keep_vectors: flat lists hold the vectors as they are; leave it out, or choose a codec"
            )
        return self


#: The parameters of each kind of index.
KINDS: dict[str, type[BaseModel]] = {"graph": Parameters, "lsh": LshParameters, "ivf": IvfParameters}


def _kind_of(parameters: Any) -> str:
    kind = parameters.get("kind", "graph") if isinstance(parameters, dict) else parameters.kind
    return str(kind)


AnyParameters = Annotated[
    Annotated[Parameters, Tag("graph")]
    | Annotated[LshParameters, Tag("lsh")]
    | Annotated[IvfParameters, Tag("ivf")],
    Discriminator(_kind_of),
]


class BuildSpec(BaseModel):
    """One build: input, output, parameters and how to run it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    input: Annotated[
        list[str], BeforeValidator(lambda v: [v] if isinstance(v, str) else v), Field(min_length=1)
    ]
    """Vectors: Parquet, Arrow, npy, fvecs, bvecs, fbin, u8bin, i8bin or HDF5; a path, glob or URL. May repeat."""
    column: str | None = None
    """Vector column; default: the only one that fits."""
    id_column: str | None = None
    """Column of user ids."""
    metadata_columns: list[str] = []
    """Columns to keep beside the vectors."""
    out: str
    """Index directory to write."""
    centroids: str | None = None
    """Centroids to use, in any input format; default: trained."""
    parameters: AnyParameters = Parameters()
    memory: Size = DEFAULT_MEMORY
    """Memory budget, such as 500MB."""
    scratch: Size | None = None
    """Most bytes in the work directory; default: what such a build may need."""
    workers: Annotated[int, Field(ge=1, le=1024)] = 2
    """Threads, on each machine."""
    executor: ExecutorName = "local"
    """Where tasks run."""
    ray_address: str | None = None
    """Ray cluster to join; default: RAY_ADDRESS, else one started on this machine."""
    work: str | None = None
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
        if self.executor == "ray" and getattr(self.parameters, "compute", "cpu") == "cuda":
            raise ValueError(
                "compute: cuda goes with the local executor, tasks of Ray ask for no GPU; take cpu"
            )
        return self

    @model_validator(mode="after")
    def _only_lists_have_centroids(self) -> BuildSpec:
        if self.centroids is not None and not isinstance(self.parameters, IvfParameters):
            raise ValueError(f"centroids: go with kind ivf, not with {self.parameters.kind}; leave them out")
        return self
