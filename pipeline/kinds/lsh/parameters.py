"""Parameters of an LSH index."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from indexmill.pipeline.kinds.common.parameters import KindParameters, Metric

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


class LshParameters(KindParameters):
    """Everything but the input that decides the bytes of an LSH index; what is None is solved for."""

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
    """Least radius; default: from sampled distances."""
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


def lsh_parameters(p: KindParameters) -> LshParameters:
    """Return the parameters of a job that is known to be one of hash tables."""
    assert isinstance(p, LshParameters)
    return p
