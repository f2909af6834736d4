"""The request of a build, as OpenSearch's contract of remote index builds has it."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from indexmill.pipeline.hnsw.parameters import LEAST_M, MOST_M, Component, HnswJob

#: Names of vector objects end so, as k-NN calls them; the index has the name of the engine in its place.
VECTOR_SUFFIX = ".knnvec"
#: Names of objects of ids end so, as k-NN calls them: no other object is copied into an index.
IDS_SUFFIX = ".knndid"
#: What ids of jobs, and so names of the files and folders of the service, look like: a SHA-256.
JOB_ID = "[0-9a-f]{64}"
#: The contract's least number of documents is one more.
_TOO_FEW = 4
#: Largest signed 32-bit number, which ids of documents and lists of HNSW end at.
_INT32 = 2**31 - 1
#: k-NN's largest dimension.
_MOST_DIM = 16_000
#: Largest length of a name; S3 allows 1,024 bytes.
_MOST_NAME = 1024

#: Component types by the contract's names.
_COMPONENTS: dict[str, Component] = {"float": "float32", "half_float": "float16", "byte": "int8"}


def _inside(path: str) -> str:
    """Refuse an object name that is no plain path below its container."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or any(ord(c) < 32 or c == "\\" for c in path):
        raise ValueError("expected a path below the container, without empty parts, . or ..")
    return path


Name = Annotated[str, Field(min_length=1, max_length=_MOST_NAME), AfterValidator(_inside)]
#: The name of a bucket alone, without what would change the URL that it becomes part of.
Container = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")]


class AlgorithmParameters(BaseModel):
    """Parameters of HNSW; the contract lets clients send more than these, which are ignored."""

    model_config = ConfigDict(frozen=True)

    ef_construction: Annotated[int, Field(ge=1, le=_INT32)] = 100
    ef_search: Annotated[int, Field(ge=1, le=_INT32)] = 100
    m: Annotated[int, Field(ge=LEAST_M, le=MOST_M)] = 16


class IndexParameters(BaseModel):
    """The structure to build."""

    model_config = ConfigDict(frozen=True)

    algorithm: Literal["hnsw"] = "hnsw"
    space_type: Literal["l2", "innerproduct", "hamming"] = "l2"
    algorithm_parameters: AlgorithmParameters = AlgorithmParameters()


class BuildRequest(BaseModel):
    """The body of ``POST /_build``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repository_type: Literal["s3"] = "s3"
    container_name: Container
    vector_path: Annotated[Name, Field(pattern=rf".+{re.escape(VECTOR_SUFFIX)}$")]
    doc_id_path: Annotated[Name, Field(pattern=rf".+{re.escape(IDS_SUFFIX)}$")]
    tenant_id: Annotated[str, Field(max_length=_MOST_NAME)] = ""
    dimension: Annotated[int, Field(gt=0, le=_MOST_DIM)]
    doc_count: Annotated[int, Field(gt=_TOO_FEW, le=_INT32)]
    data_type: Literal["float", "half_float", "byte", "binary"] = "float"
    engine: Literal["faiss"] = "faiss"
    index_parameters: IndexParameters = IndexParameters()
    skip_stored_vectors: bool = False

    @model_validator(mode="after")
    def _no_bits(self) -> BuildRequest:
        """Refuse what the contract has and this service has not, by name."""
        if self.data_type == "binary" or self.index_parameters.space_type == "hamming":
            raise ValueError(
                "binary vectors and space type hamming are not built here; build them on the node"
            )
        return self

    @property
    def job_id(self) -> str:
        """Id of the job: of what the client calls its vectors, as the contract's own service derives it."""
        return hashlib.sha256(f"{self.vector_path}-{self.tenant_id}".encode()).hexdigest()

    @property
    def out_path(self) -> str:
        """Object of the index, beside the vectors."""
        return f"{self.vector_path.removesuffix(VECTOR_SUFFIX)}.{self.engine}"

    @property
    def file_name(self) -> str:
        """Last part of `out_path`, which the contract calls the name of the file."""
        return self.out_path.rpartition("/")[2]

    def job(self, storage: str) -> HnswJob:
        """Return the build that is asked for.

        Parameters
        ----------
        storage : str
            URL of containers, with ``{container}`` in place of their name.
        """
        structure = self.index_parameters
        numbers = structure.algorithm_parameters
        return HnswJob(
            storage=storage.replace("{container}", self.container_name),
            vectors=self.vector_path,
            ids=self.doc_id_path,
            out=self.out_path,
            n=self.doc_count,
            dim=self.dimension,
            component=_COMPONENTS[self.data_type],
            metric="l2" if structure.space_type == "l2" else "ip",
            m=numbers.m,
            add_list=numbers.ef_construction,
            search_list=numbers.ef_search,
            has_vectors=not self.skip_stored_vectors,
        )
