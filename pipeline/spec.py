"""The parameters of one build: every name, default and limit, defined once.

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
AnyMetric = Annotated[Metric, Field(description="Euclidean distance, inner product or cosine.")]
Seed = Annotated[
    int, Field(ge=0, lt=2**32, description="Random seed; equal input, parameters and seed give equal bytes.")
]
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

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Annotated[
        Literal["graph"],
        Field(description="Kind of index: a graph, hash tables, or inverted lists for joins."),
    ] = "graph"
    builder: Annotated[
        Literal["vamana", "partition"],
        Field(
            description="How the graph is built, by searches or, faster, by comparing all pairs of small sets."
        ),
    ] = "vamana"
    max_degree: Annotated[int, Field(alias="R", ge=2, le=512, description="Most neighbours of a vertex.")] = (
        DEFAULT_MAX_DEGREE
    )
    build_list_size: Annotated[
        int, Field(alias="L", ge=4, le=4096, description="Candidates kept while building.")
    ] = DEFAULT_BUILD_LIST_SIZE
    alpha: Annotated[float, Field(ge=1.0, le=4.0, description="Pruning slack.")] = DEFAULT_ALPHA
    saturate: Annotated[
        bool,
        Field(
            description="Fill neighbour lists that pruning left short with the nearest pruned candidates, which saves "
            "page reads."
        ),
    ] = True
    passes: Annotated[
        int,
        Field(
            ge=1,
            le=2,
            description="vamana: how often every vertex is inserted, 1 or 2; with 2, as in the paper, the first pass "
            "has no slack.",
        ),
    ] = DEFAULT_PASSES
    build_codes: Annotated[
        BuildCodes,
        Field(
            description="vamana: codes that searches of the build compare instead of the vectors; sq8, a byte a "
            "component, is faster for float vectors."
        ),
    ] = "none"
    pq_bytes: Annotated[int, Field(ge=1, le=MAX_BYTES, description="Bytes of a PQ code.")] = DEFAULT_PQ_BYTES
    pq_rotation: Annotated[
        Literal["none", "opq"],
        Field(description="Rotation of the vectors before they are coded; opq makes codes more exact."),
    ] = "none"
    order: Annotated[Order, Field(description="Order of the vertices on the pages.")] = "star"
    node_dtype: Annotated[
        NodeDtype, Field(description="Type of the vectors on the pages, that of the input or a smaller one.")
    ] = "same"
    metric: AnyMetric = "l2"
    entries: Annotated[
        int, Field(ge=1, le=65536, description="Entry vertices that searches choose their start from.")
    ] = DEFAULT_ENTRIES
    navigation: Annotated[
        float, Field(ge=0, le=0.1, description="Share of the vectors in the navigation graph; 0 for none.")
    ] = DEFAULT_NAVIGATION
    sample_vectors: Annotated[
        int, Field(ge=256, description="Vectors that codes and centroids are trained on.")
    ] = DEFAULT_SAMPLE
    shard_vectors: Annotated[
        Annotated[int, Field(ge=64)] | None,
        Field(description="Vectors of a shard; default: as many as the memory allows."),
    ] = None
    overlap: Annotated[
        float, Field(ge=0, le=1, description="Share of the vectors that belong to a second shard.")
    ] = DEFAULT_OVERLAP
    compute: Annotated[
        Compute,
        Field(
            alias="device",
            description="graph, ivf: processor that compares leaves and makes centroids and codes; cuda: a GPU, by "
            "CuPy, with other bytes as a result; auto: a GPU if there is one.",
        ),
    ] = "cpu"
    seed: Seed = 1

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

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Literal["lsh"] = "lsh"
    metric: AnyMetric = "l2"
    ratio: Annotated[
        float, Field(alias="c", gt=1, le=16, description="Approximation ratio, and step between radii.")
    ] = DEFAULT_RATIO
    width: Annotated[float, Field(alias="w", ge=1e-3, le=1000, description="Bucket width, in radii.")] = (
        DEFAULT_WIDTH
    )
    gamma: Annotated[
        float,
        Field(
            gt=0,
            le=4,
            description="Scale of the functions of a compound hash; less: fewer tables, more candidates.",
        ),
    ] = DEFAULT_GAMMA
    success: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="Probability that a vector within the radius shares a bucket with the query; decides the "
            f"number of tables. (default {DEFAULT_SUCCESS})",
        ),
    ] = None
    n_functions: Annotated[
        int | None,
        Field(alias="m", ge=1, le=256, description="Functions of a compound hash; default: solved."),
    ] = None
    n_tables: Annotated[
        int | None, Field(alias="L", ge=1, le=65535, description="Tables of each radius; default: solved.")
    ] = None
    n_radii: Annotated[
        int | None, Field(ge=1, le=256, description="Radii; default: up to the extent of the vectors.")
    ] = None
    first_radius: Annotated[
        float | None,
        Field(ge=1e-30, lt=1e30, description="Least radius; default: from sampled nearest distances."),
    ] = None
    candidates: Annotated[
        int | None,
        Field(
            alias="S",
            ge=1,
            lt=2**32,
            description="Most distances a search computes in a radius; default: solved.",
        ),
    ] = None
    probes: Annotated[
        int,
        Field(
            ge=0,
            le=65535,
            description="Further buckets of each table that a search looks at, for fewer tables.",
        ),
    ] = 0
    hash_bits: Annotated[
        int | None,
        Field(ge=0, le=31, description="Bits that choose a bucket; default: as many as fill blocks."),
    ] = None
    block_bytes: Annotated[
        Literal[128, 256, 512, 1024, 2048, 4096], Field(description="Bytes of a bucket block.")
    ] = DEFAULT_BLOCK_BYTES
    seed: Seed = 1

    @model_validator(mode="after")
    def _tables_are_said_once(self) -> LshParameters:
        if self.success is not None and self.n_tables is not None:
            raise ValueError(
                "success: decides the number of tables, which n_tables says too; give one of them"
            )
        return self


class IvfParameters(BaseModel):
    """Everything but the input and given centroids that decides the bytes of an IVF index."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Literal["ivf"] = "ivf"
    lists: Annotated[int, Field(ge=1, le=1 << 20, description="Inverted lists.")] = DEFAULT_LISTS
    codec: Annotated[
        Literal["flat", "sq8", "pq"],
        Field(description="What lists hold: vectors as they are, a byte a component, or PQ codes."),
    ] = "flat"
    pq_bytes: Annotated[int, Field(ge=1, le=MAX_BYTES, description="Bytes of a PQ code.")] = DEFAULT_PQ_BYTES
    batch_vectors: Annotated[
        Annotated[int, Field(ge=64)] | None,
        Field(description="Vectors of a batch; default: two batches fill half the memory of a join."),
    ] = None
    metric: AnyMetric = "l2"
    sample_vectors: Annotated[
        int, Field(ge=256, description="Vectors that codes and centroids are trained on.")
    ] = DEFAULT_SAMPLE
    copies: Annotated[
        int, Field(ge=1, le=255, description="Most lists that hold a vector, those near it on all sides.")
    ] = 1
    closure: Annotated[
        float,
        Field(
            ge=0,
            le=100,
            allow_inf_nan=False,
            description="With copies: a further list's centroid is at most 1 + CLOSURE times as far as the nearest.",
        ),
    ] = DEFAULT_CLOSURE
    keep_vectors: Annotated[
        bool, Field(description="Keep exact vectors beside codes, so that searches can rerank.")
    ] = False
    compute: Annotated[
        Compute,
        Field(
            alias="device",
            description="graph, ivf: processor that compares leaves and makes centroids and codes; cuda: a GPU, by "
            "CuPy, with other bytes as a result; auto: a GPU if there is one.",
        ),
    ] = "cpu"
    seed: Seed = 1

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

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Annotated[
        list[str],
        BeforeValidator(lambda v: [v] if isinstance(v, str) else v),
        Field(
            min_length=1,
            description="Vectors: Parquet, Arrow, npy, fvecs, bvecs, fbin, u8bin, i8bin or HDF5; a path, glob or URL. "
            "May repeat.",
        ),
    ]
    column: Annotated[str | None, Field(description="Vector column; default: the only one that fits.")] = None
    id_column: Annotated[str | None, Field(description="Column of user ids.")] = None
    metadata_columns: Annotated[list[str], Field(description="Columns to keep beside the vectors.")] = []
    out: Annotated[str, Field(description="Index directory to write.")]
    centroids: Annotated[
        str | None, Field(description="Centroids to use, in any input format; default: trained.")
    ] = None
    parameters: AnyParameters = Parameters()
    memory: Annotated[Size, Field(description="Memory budget, such as 500MB.")] = DEFAULT_MEMORY
    scratch: Annotated[
        Size | None,
        Field(description="Most bytes in the work directory; default: what such a build may need."),
    ] = None
    workers: Annotated[int, Field(ge=1, le=1024, description="Threads, on each machine.")] = 2
    executor: Annotated[ExecutorName, Field(description="Where tasks run.")] = "local"
    ray_address: Annotated[
        str | None,
        Field(description="Ray cluster to join; default: RAY_ADDRESS, else one started on this machine."),
    ] = None
    work: Annotated[
        str | None,
        Field(
            description="Directory that keeps finished stages for builds that share them; default: removed at the end."
        ),
    ] = None
    force: Annotated[bool, Field(description="Replace an output that exists.")] = False

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
