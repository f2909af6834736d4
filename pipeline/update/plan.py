"""The prediction of an update: memory, scratch space and seconds of each step, and what a rebuild would take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import Manifest
from indexmill.pipeline.append.checked import opened_source
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.generations.scratch import JOB_KIND, scratch_directory
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, check_need
from indexmill.pipeline.kinds.common.seconds import starting_seconds
from indexmill.pipeline.merge.run import check_merge
from indexmill.pipeline.mill.disk_space import existing_parent
from indexmill.pipeline.plan import StagePlan
from indexmill.pipeline.update.given import Given, read_bases
from indexmill.pipeline.update.graphs import GraphPredictor
from indexmill.pipeline.update.lists import ListsPredictor
from indexmill.pipeline.update.predicted import Predicted, Predictor, State, file_bytes
from indexmill.pipeline.update.spec import UpdateSpec
from indexmill.pipeline.update.steps import deletes_in_place, is_due_of
from indexmill.pipeline.update.tables import TablesPredictor

#: How indexes of each kind are opened, and what foretells their steps.
_PREDICTORS: dict[str, tuple[Callable[..., Any], Callable[..., Predictor]]] = {
    "graph": (OpenedIndex, GraphPredictor),
    "ivf": (OpenedLists, ListsPredictor),
    "lsh": (OpenedTables, TablesPredictor),
}
#: Seconds and bytes of a vector whose id is compared with those to delete, about; bytes of a slot that is deleted.
_MATCH_SECONDS, _MATCH_BYTES, _SLOT_BYTES = 1e-7, 24, 4


@dataclass(frozen=True)
class RebuildPlan:
    """A build of the vectors that the result will have.

    Attributes
    ----------
    seconds : float or None
        None if it does not fit the memory.
    cheaper : bool
        Whether it takes less time than the update.
    advice : str
    """

    seconds: float | None
    cheaper: bool
    advice: str


@dataclass(frozen=True)
class UpdatePlan:
    """The prediction for one update; `seconds` are those of its stages and of the start of its process.

    Attributes
    ----------
    vectors, deleted : int
        Of the result: all vectors, and how many of them are deleted.
    stages : dict
        By step and stage, such as ``append insert``.
    note : str, optional
        What the figures leave out.
    """

    peak_memory_bytes: int
    peak_scratch_bytes: int
    seconds: float
    vectors: int
    deleted: int
    stages: dict[str, StagePlan]
    rebuild: RebuildPlan
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON has it."""
        plan = asdict(self)
        return {key: value for key, value in plan.items() if key != "note" or value is not None}


def plan_update(spec: UpdateSpec, given: Given) -> UpdatePlan:
    """Predict an update; nothing is written but files of trials, where the work folder would be.

    Raises
    ------
    BudgetError
        If a step does not fit the memory, naming what is needed.
    IndexmillError
        As the update would, of its indexes and files.
    """
    manifests = read_bases(spec)
    opened, predictor_of = _PREDICTORS[manifests[0].kind]
    out = Path(os.path.realpath(spec.out or spec.base[0]))
    place = existing_parent(scratch_directory(out, spec.work, JOB_KIND))
    with ExitStack() as stack:
        indexes = [stack.enter_context(opened(base)) for base in spec.base]
        if len(indexes) > 1:
            check_merge(indexes, spec.force)
        added = None
        if given.open_add is not None:
            added = opened_source(indexes[0], given.open_add, spec.replace)
        n_added = 0 if added is None else added.n_vectors
        states = [
            State(index.n, len(index.deleted), sum(entry.bytes for entry in index.manifest.files))
            for index in indexes
        ]
        gone = 0 if given.ids is None else len(given.ids.values.unique())
        whole = max(1, sum(state.left for state in states) + n_added - gone)
        predictor = predictor_of(indexes, spec, added, whole, place)
        steps = list[tuple[str, Predicted, State]]()
        for step in _steps(spec, given, predictor, states, n_added, gone):
            check_need(f"step {step[0]} takes", step[1].need, spec.memory)
            steps.append(step)
        return _plan(spec, predictor, manifests, steps, states[0])


def _steps(
    spec: UpdateSpec, given: Given, predictor: Predictor, states: list[State], added: int, gone: int
) -> Iterator[tuple[str, Predicted, State]]:
    """Yield the name of each step of an update, its cost, and the state of the index after it."""
    now = states[0]
    if len(states) > 1:
        left = [state.without_deleted() for state in states]
        now = State(sum(state.n for state in left), 0, sum(state.bytes for state in left))
        merged = predictor.merge(states, now)
        now = replace(now, bytes=merged.result)
        yield "merge", merged, now
    if given.ids is not None:
        before, now = now, replace(now, deleted=min(now.n, now.deleted + gone))
        if not deletes_in_place(spec, given):
            now = replace(now, bytes=now.bytes + file_bytes(_SLOT_BYTES * now.deleted))
        yield "delete", _deletion(before, now, deletes_in_place(spec, given)), now
    if added:
        appended = predictor.append(now, added)
        now = replace(now, n=now.n + added, bytes=appended.result)
        yield "append", appended, now
    changes, advised = predictor.changes_without_deletions(now), predictor.may_advise_compaction(now)
    if is_due_of(spec, now.n, now.deleted, changes, advised):
        if not now.left:
            raise InputError(
                f"compact: {spec.base[0]}: no vector would be left, and an index holds at least one"
            )
        before, predicted = now, predictor.compact(now)
        now = State(before.left, 0, predicted.result)
        if not is_due_of(spec, before.n, before.deleted, changes, False):
            predicted = replace(predicted, note="compact, if the drift of the index advises it by then")
        yield "compact", predicted, now


def _deletion(before: State, after: State, in_place: bool) -> Predicted:
    """Return what a deletion takes, which gives all files of the index a second name if it is not made `in_place`."""
    held = _MATCH_BYTES * before.n
    files, shared = (0, 0) if in_place else (after.bytes, before.bytes)
    seconds = {"match": before.n * _MATCH_SECONDS}
    return Predicted(seconds, FIXED_BYTES + held, held, files, files, shared=shared)


def _plan(
    spec: UpdateSpec, predictor: Predictor, manifests: Sequence[Manifest],
    steps: Sequence[tuple[str, Predicted, State]], first: State,
) -> UpdatePlan:  # fmt: skip
    last = steps[-1][2] if steps else first
    stages, peak, before = dict[str, StagePlan](), 0, 0
    for name, step, _ in steps:
        names = list(step.seconds)
        files = {names[0]: step.scratch - step.result, names[-1]: step.result}
        for stage, seconds in step.seconds.items():
            stages[f"{name} {stage}"] = StagePlan(round(float(seconds), 2), step.memory, files.get(stage, 0))
        # the index before stays until the step is done; the first step begins with one that lies elsewhere
        peak = max(peak, before + step.scratch - min(before, step.shared))
        before = step.result
    whole = round(
        starting_seconds(predictor.start_seconds) + sum(stage.seconds for stage in stages.values()), 1
    )
    notes = []
    if spec.replace:
        notes.append("vectors that are replaced are not counted among the deleted")
    if spec.delete is not None:
        notes.append("every id to delete is taken to be there")
    notes += [step.note for _, step, _ in steps if step.note is not None]
    return UpdatePlan(
        peak_memory_bytes=max((step.memory for _, step, _ in steps), default=0),
        peak_scratch_bytes=peak,
        seconds=whole,
        vectors=last.n,
        deleted=last.deleted,
        stages=stages,
        rebuild=rebuild_beside(predictor, manifests, whole),
        note="; ".join(notes) or None,
    )


def rebuild_beside(predictor: Predictor, manifests: Sequence[Manifest], seconds: float) -> RebuildPlan:
    """Return what a rebuild would take beside an update of so many `seconds`, and what the drift of the bases says."""
    drifted = next((words for manifest in manifests if (words := _drift_advice(manifest)) is not None), None)
    rebuilt, refusal = predictor.rebuild()
    if rebuilt is None:
        despite = (
            "" if drifted is None else f"; update, or find room for it, as the drift asks for one: {drifted}"
        )
        return RebuildPlan(None, False, f"a rebuild does not fit: {refusal}{despite}")
    rebuilt = round(rebuilt, 1)
    cheaper = rebuilt < seconds
    advice = "build anew" if cheaper or drifted is not None else "update"
    reason = "" if drifted is None else f", as the drift asks for it: {drifted}"
    return RebuildPlan(rebuilt, cheaper, f"a rebuild would take {rebuilt:,.0f} s: {advice}{reason}")


def _drift_advice(manifest: Manifest) -> str | None:
    """Return the reason of a drift that advises to rebuild."""
    for drift in (manifest.drift, manifest.ivf.get("drift"), manifest.lsh.get("drift")):
        if drift and drift.get("rebuild"):
            return str(drift.get("advice")).removeprefix("rebuild: ")
    return None
