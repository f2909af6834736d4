"""What a build will take: peak memory, scratch space, time and shards, from the job and a short probe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.build import open_input, work_directory
from indexmill.pipeline.kinds.common.compute import on_processor
from indexmill.pipeline.kinds.graph import memory as needs
from indexmill.pipeline.kinds.graph.regions.plan import expected
from indexmill.pipeline.kinds.graph.seconds import probe, stage_seconds
from indexmill.pipeline.kinds.graph.size import GraphBlueprint
from indexmill.pipeline.kinds.ivf import memory as ivf_budget
from indexmill.pipeline.kinds.ivf.memory import IvfShape
from indexmill.pipeline.kinds.ivf.seconds import ivf_seconds
from indexmill.pipeline.kinds.ivf.size import IvfBlueprint
from indexmill.pipeline.kinds.kind import Blueprint
from indexmill.pipeline.kinds.lsh import memory as lsh_needs
from indexmill.pipeline.kinds.lsh.seconds import lsh_seconds
from indexmill.pipeline.kinds.lsh.size import LshBlueprint, solved_facts
from indexmill.pipeline.kinds.registry import blueprint
from indexmill.pipeline.mill.room import existing_parent
from indexmill.pipeline.spec import BuildSpec

#: The interpreter, imports, and kernels out of their cache; the first build on a machine also compiles them.
START_SECONDS = 2.4
_NO_GPU = (
    "seconds and memory are those of compute cpu: what a GPU saves, and what CUDA takes, is not predicted"
)


@dataclass(frozen=True)
class StagePlan:
    """One stage: seconds, peak memory of all processes while it runs, bytes it leaves in the work directory."""

    seconds: float
    memory_bytes: int
    scratch_bytes: int


@dataclass(frozen=True)
class ShardPlan:
    """How the graph is cut: `n` shards of about `vectors` each; `mean_fanout` shards hold a vector."""

    n: int
    vectors: int
    mean_fanout: float


@dataclass(frozen=True)
class Plan:
    """The prediction for one build; `seconds` are those of its stages and `START_SECONDS`.

    `shards` are those of a graph, `regions` likewise where the partition builder goes through files, `lsh` the
    parameters solved for an LSH index, `ivf` lists and batches, `note` what the figures leave out.
    """

    peak_memory_bytes: int
    peak_scratch_bytes: int
    seconds: float
    stages: dict[str, StagePlan]
    shards: ShardPlan | None = None
    regions: ShardPlan | None = None
    lsh: dict[str, Any] | None = None
    ivf: dict[str, Any] | None = None
    note: str | None = None


def make_plan(spec: BuildSpec, source: VectorSource | None = None) -> Plan:
    """Predict a build; nothing is written but a file of the probe, where the work directory would be.

    Raises
    ------
    BudgetError
        If the build does not fit its memory or its scratch space, naming what is needed.
    IndexmillError
        As the build would, of parameters and input.
    """
    planned = on_processor(spec)
    note = None if planned is spec else _NO_GPU
    spec = planned
    build = blueprint(spec, source or open_input(spec))
    place = work_directory(spec)
    scratch, files = build.check_room(place, 0)
    own, seconds, facts = _predicted(build, files, existing_parent(place))
    memory = needs.peak_bytes(own, spec.executor, spec.workers)
    return Plan(
        peak_memory_bytes=max(memory.values()),
        peak_scratch_bytes=scratch,
        seconds=round(START_SECONDS + sum(seconds.values()), 1),
        stages=_stages(seconds, memory, files),
        note=note,
        **facts,
    )


def _predicted(
    build: Blueprint, files: dict[str, int], place: Path
) -> tuple[dict[str, int], dict[str, float], dict[str, Any]]:
    """Return own memory and seconds of each stage, and what `Plan` says of the kind, having probed at `place`."""
    spec, source = build.spec, build.source
    if isinstance(build, LshBlueprint):
        own = lsh_needs.stage_bytes(build.size, spec.memory, spec.workers)
        seconds = lsh_seconds(source, build.size, spec.workers, place, files)
        return own, seconds, {"lsh": solved_facts(build.size)}
    if isinstance(build, IvfBlueprint):
        own = ivf_budget.stage_bytes(build.shape, spec.memory, spec.workers)
        seconds = ivf_seconds(source, build.shape, spec.memory, spec.workers, place, files)
        return own, seconds, {"ivf": _lists(build.shape, files)}
    assert isinstance(build, GraphBlueprint)
    shape = build.shape
    n, largest = needs.expected_shards(shape)
    processes = needs.workers_bytes(spec.executor, spec.workers)
    own = needs.stage_bytes(shape, spec.memory, spec.workers, largest, processes)
    seconds = stage_seconds(probe(source, shape, spec.workers, place), shape, files)
    fanout = 1.0 if n == 1 else 1 + shape.parameters.overlap
    facts: dict[str, Any] = {"shards": ShardPlan(n, int(shape.n * fanout / n), fanout)}
    if shape.region_bytes is not None and (cut := expected(shape, spec.memory)) is not None:
        facts["regions"] = ShardPlan(cut.regions, cut.members, round(cut.times, 2))
    return own, seconds, facts


def _lists(shape: IvfShape, files: dict[str, int]) -> dict[str, Any]:
    """What an IVF index will be: lists, batches and bytes."""
    p, batches = shape.parameters, len(shape.batches) - 1
    return {
        "lists": p.lists,
        "codec": p.codec,
        "batches": batches,
        "batch_vectors": min(p.batch_vectors or shape.n, shape.n),
        "index_bytes": files["lists"] + files["emit"],
    }


def _stages(seconds: dict[str, float], memory: dict[str, int], files: dict[str, int]) -> dict[str, StagePlan]:
    return {
        name: StagePlan(round(seconds.get(name, 0.0), 2), memory.get(name, 0), size)
        for name, size in files.items()
    }
