"""One update job: the indexes it begins with, what it deletes and adds, and how it runs."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from indexmill.formats.location import local_path
from indexmill.pipeline.generations.delete import Missing
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.spec import DEFAULT_MEMORY, Bytes


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _local(name: str) -> AfterValidator:
    return AfterValidator(partial(local_path, name=name))


class UpdateSpec(BaseModel):
    """One update job: what happens to an index, in this order: merge, delete, add, compact."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    base: Annotated[list[Annotated[str, _local("base")]], BeforeValidator(_listed), Field(min_length=1)]
    """The index, or several indexes that are merged."""
    add: Annotated[list[str], BeforeValidator(_listed)] = []
    """Vectors to add, in any input format; paths, globs or URLs."""
    column: str | None = None
    """Vector column; default: the only one that fits."""
    id_column: str | None = None
    """Column of user ids."""
    replace: bool = False
    """Whether vectors of the index with the same user ids are deleted."""
    delete: Annotated[str, _local("delete")] | None = None
    """File of ids to delete."""
    delete_column: str | None = None
    """Column of a Parquet or Arrow file of ids; default: the only one."""
    vector_ids: bool = False
    """Whether the ids to delete are positions in the input; else they are user ids, if the index has some."""
    missing: Missing = "error"
    """What to do about ids to delete that are not there."""
    compact: bool | Literal["auto"] = False
    """Whether deleted vectors are removed for good; auto: once a fifth of all vectors is deleted, or added tables make
    searches read a quarter more."""
    out: Annotated[str, _local("out")] | None = None
    """Where the result goes; default: the (first) base, as its next generation."""
    work: Annotated[str, _local("work")] | None = None
    """Directory for scratch files; default: beside the output."""
    memory: Bytes = DEFAULT_MEMORY
    """Memory budget beside the page cache."""
    workers: Annotated[int, Field(ge=1, le=1024)] = 2
    """Threads."""
    force: bool = False
    """Replace another index at `out`, and merge indexes that have vectors in common."""
    keep_generations: Annotated[int, Field(ge=1)] | None = None
    """Generations to keep where the job writes the index anew, the new one among them; default: the new one, the one
    before it, and those that share files with that one."""

    @model_validator(mode="after")
    def _something_is_done(self) -> UpdateSpec:
        if len(self.base) == 1 and not self.add and self.delete is None and self.compact is False:
            raise ValueError(
                "base: nothing is to be done with it; say add, delete or compact, or name more indexes"
            )
        return self

    @model_validator(mode="after")
    def _details_go_with_their_step(self) -> UpdateSpec:
        for step, keys in (
            ("add", ("column", "id_column", "replace")),
            ("delete", ("delete_column", "vector_ids", "missing")),
        ):
            for key in keys:
                if not getattr(self, step) and getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(f"{key}: goes with {step}; say what to {step}, or leave {key} out")
        return self

    @model_validator(mode="after")
    def _output_replaces_no_other_base(self) -> UpdateSpec:
        first, *others = map(os.path.realpath, self.base)
        out = first if self.out is None else os.path.realpath(self.out)
        if out != first and out in others:
            raise ValueError(
                f"out: {self.out} is merged into {self.base[0]}; name it first in base to replace it, or name "
                "another directory"
            )
        return self

    @property
    def run_options(self) -> RunOptions:
        """Where the job as a whole writes, and its limits."""
        return RunOptions(self.out, self.memory, self.workers, self.force, self.work, self.keep_generations)

    @property
    def brings_vectors(self) -> bool:
        """Whether the job adds or merges vectors: what it must not do twice."""
        return bool(self.add) or len(self.base) > 1
