"""The builder of a graph whose job names none: `partition` where its memory fits, else `vamana`.

A build must have the same bytes with any number of workers and any executor, so neither decides its builder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from indexmill.pipeline.execution.limits import MOST_NARROW
from indexmill.pipeline.kinds.graph.memory import fits, least_memory
from indexmill.pipeline.kinds.graph.parameters import Builder
from indexmill.pipeline.kinds.graph.shape import GraphShape

#: Workers that `partition` must have memory for, unless no other builder fits: each takes the rows of a leaf.
COUNTED_WORKERS = MOST_NARROW


@dataclass(frozen=True)
class ChosenBuilder:
    """The name of a builder, and why a job has it."""

    name: Builder
    why: str


def with_builder(
    shape: GraphShape, memory: int, executor: str, workers: int
) -> tuple[GraphShape, ChosenBuilder]:
    """Return `shape` with the builder that its job names or, for ``auto``, that suits its memory; and why.

    Where no builder fits, `shape` has the one that needs the least memory with `workers` of `executor`.
    """
    p = shape.parameters
    if p.builder != "auto":
        return shape, ChosenBuilder(p.builder, "named by the job")
    if asked := p.of_insertions:
        return _of(shape, "vamana"), ChosenBuilder("vamana", f"partition has no {asked[0]}")
    partition, vamana = _of(shape, "partition"), _of(shape, "vamana")
    if fits(partition, memory, "local", COUNTED_WORKERS):
        return partition, ChosenBuilder("partition", "its memory fits")
    if fits(vamana, memory, "local", 1):
        need = least_memory(partition, "local", COUNTED_WORKERS)
        return vamana, ChosenBuilder("vamana", f"partition is chosen from {need >> 20:,} MiB of memory")
    if fits(partition, memory, "local", 1):
        return partition, ChosenBuilder("partition", "vamana needs more memory")
    least = min((partition, vamana), key=lambda one: least_memory(one, executor, workers))
    return least, ChosenBuilder(least.parameters.builder, "it needs the least memory")


def _of(shape: GraphShape, builder: Builder) -> GraphShape:
    return replace(shape, parameters=shape.parameters.model_copy(update={"builder": builder}))
