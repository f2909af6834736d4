"""What a build will take: peak memory, scratch space, time and shards, from the job and a short probe."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.formats.source import VectorSource
from indexmill.pipeline import needs
from indexmill.pipeline.build import (
    check_free,
    check_scratch,
    existing_parent,
    open_input,
    work_directory,
)
from indexmill.pipeline.kinds import resolve_graph
from indexmill.pipeline.probe import probe, stage_seconds
from indexmill.pipeline.scratch import needed_scratch, side_columns
from indexmill.pipeline.spec import BuildSpec


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
    """The prediction for one build."""

    peak_memory_bytes: int
    peak_scratch_bytes: int
    seconds: float
    shards: ShardPlan
    stages: dict[str, StagePlan]


def make_plan(spec: BuildSpec, source: VectorSource | None = None) -> Plan:
    """Predict a build; nothing is written but a file of the probe, where the work directory would be.

    Raises
    ------
    BudgetError
        If the build does not fit its memory or its scratch space, naming what is needed.
    IndexmillError
        As the build would, of parameters and input.
    """
    opened = source or open_input(spec)
    shape = resolve_graph(spec, opened)
    n, largest = needs.expected_shards(shape)
    own = needs.stage_bytes(shape, spec.memory, spec.workers, largest)
    memory = needs.peak_bytes(own, spec.executor, spec.workers)
    scratch, files = needed_scratch(shape, side_columns(opened), spec.memory, keep=spec.work is not None)
    place = work_directory(spec)
    if spec.scratch is not None:
        check_scratch(scratch, spec.scratch, place)
    check_free(place, scratch)
    rates = probe(opened, shape, spec.workers, existing_parent(place))
    seconds = stage_seconds(rates, shape, files)
    fanout = 1.0 if n == 1 else 1 + shape.parameters.overlap
    return Plan(
        peak_memory_bytes=max(memory.values()),
        peak_scratch_bytes=scratch,
        seconds=round(sum(seconds.values()), 1),
        shards=ShardPlan(n, int(shape.n * fanout / n), fanout),
        stages={
            name: StagePlan(round(seconds.get(name, 0.0), 2), memory.get(name, 0), size)
            for name, size in files.items()
        },
    )
