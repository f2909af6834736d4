"""The prediction of a build: peak memory, scratch space, time and pieces, from the job and a short trial."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.build import open_input, work_directory
from indexmill.pipeline.kinds.common.seconds import starting_seconds
from indexmill.pipeline.kinds.registry import kind_of
from indexmill.pipeline.mill.disk_space import existing_parent
from indexmill.pipeline.sets.build import refuse_job
from indexmill.pipeline.sets.size import SetSize
from indexmill.pipeline.spec import BuildSpec

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: Components of all vectors from which a build is planned first: the trials of a plan take 5 to 20 seconds, such a
#: build takes minutes.
PLANNED_FROM = 400_000_000
#: The note of a plan whose job computes on a GPU.
NO_GPU = (
    "seconds and memory are those of compute cpu: what a GPU saves, and what CUDA takes, is not predicted"
)


@dataclass(frozen=True)
class StagePlan:
    """One stage: seconds, peak memory of all processes while it runs, bytes it leaves in the work directory."""

    seconds: float
    memory_bytes: int
    scratch_bytes: int


@dataclass(frozen=True)
class Plan:
    """The prediction for one build; `seconds` are those of its stages and of the start of its process.

    Attributes
    ----------
    facts : dict
        What the kind says of the index: see the `facts` of its `Size`.
    note : str, optional
        What the figures leave out.
    """

    peak_memory_bytes: int
    peak_scratch_bytes: int
    seconds: float
    stages: dict[str, StagePlan]
    facts: dict[str, Any]
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON has it: facts stand between stages and note."""
        return as_json(self)


def as_json(plan: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a plan as JSON has them, with the entries of ``facts`` in its place, and a note if any."""
    fields = asdict(plan)
    facts, note = fields.pop("facts"), fields.pop("note")
    return {**fields, **facts, **({} if note is None else {"note": note})}


def make_plan(spec: BuildSpec, source: VectorSource | None = None) -> Plan:
    """Predict a build, or that of a set; nothing is written but files of trials, where the work directory would be.

    Raises
    ------
    BudgetError
        If the build does not fit its memory or its scratch space, naming what is needed.
    IndexmillError
        As the build would, of parameters and input.
    """
    if spec.parts is not None:
        return _plan_of_set(spec, source)
    planned = spec.computing_on("cpu")
    size = kind_of(planned.parameters).resolve(planned, source or open_input(planned))
    place = work_directory(planned)
    trials = existing_parent(place)
    size.settle(trials)
    scratch, files = size.check_space(place, 0)
    memory, seconds = size.peak_bytes(), size.seconds(trials)
    stages = {
        name: StagePlan(round(seconds[name], 2), memory.get(name, 0), held) for name, held in files.items()
    }
    return Plan(
        peak_memory_bytes=max(memory.values()),
        peak_scratch_bytes=scratch,
        seconds=round(starting_seconds(size.start_seconds) + sum(seconds[name] for name in files), 1),
        stages=stages,
        facts=size.facts(),
        note=None if planned is spec else NO_GPU,
    )


def _plan_of_set(spec: BuildSpec, source: VectorSource | None) -> Plan:
    """Predict the build of a set: stages of parts take as long as those of all parts together."""
    refuse_job(spec, source)
    planned = spec.computing_on("cpu")
    place = work_directory(planned)
    size = SetSize(planned, source or open_input(planned), existing_parent(place))
    scratch, costs = size.check_space(place), size.stages()
    stages = {
        name: StagePlan(round(cost.seconds, 2), cost.memory_bytes, cost.scratch_bytes)
        for name, cost in costs.items()
    }
    return Plan(
        peak_memory_bytes=max(cost.memory_bytes for cost in costs.values()),
        peak_scratch_bytes=scratch,
        seconds=round(
            starting_seconds(size.part.start_seconds) + sum(one.seconds for one in costs.values()), 1
        ),
        stages=stages,
        facts=size.facts(),
        note=None if planned is spec else NO_GPU,
    )
