"""An update job: its steps work in the work folder, and the last index is published at once.

So searches see the index of yesterday or that of today. A killed job resumes after the last step that it finished. What
a job published it tells in run.json: a job that was killed later, or runs twice, is not applied again, and another job
that would bring the same vectors is refused.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ConfigError
from indexmill.formats.index.deleted import next_generation, read_deleted
from indexmill.formats.index.manifest import Manifest, read_manifest
from indexmill.formats.index.names import MANIFEST_NAME
from indexmill.formats.kinds import KINDS
from indexmill.formats.pagefile.atomic import write_json_atomic
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.generations.brought import BROUGHT, read_run
from indexmill.pipeline.generations.delete import run_delete
from indexmill.pipeline.generations.history import following_number, publish_next
from indexmill.pipeline.generations.run import PUBLISH, GenerationRun
from indexmill.pipeline.generations.scratch import JOB_KIND
from indexmill.pipeline.mill.progress import Prefixed, Progress
from indexmill.pipeline.mill.publish import leftovers, remove_leftover
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.update.given import Given, Signed, check_unchanged, read_bases, signed_inputs
from indexmill.pipeline.update.spec import UpdateSpec
from indexmill.pipeline.update.steps import (
    Step,
    delete_options,
    deletes_in_place,
    emptied_target,
    is_due,
    named,
    steps_of,
)

VERSION = 1
#: What was done so far, in the folder of each step; what run.json says of the job that wrote an index.
_REPORTS, _RECORD = "reports.json", "update"


@dataclass(frozen=True)
class UpdateResult:
    """Outcome of an update job.

    Attributes
    ----------
    steps : list of dict
        What each step did: ``step``, its name, and its figures.
    manifest : dict
        Of the index, as it stands there.
    done_before : bool
        Whether an earlier run had published this job, so that nothing was done.
    """

    steps: list[dict[str, Any]]
    manifest: dict[str, Any]
    done_before: bool = False


def run_update(spec: UpdateSpec, given: Given, progress: Progress | None = None) -> UpdateResult:
    """Merge, delete, add and compact as a job says, and publish the result as one generation.

    Where a job only deletes from the index in its place, the generation shares its files with the one before. Where
    nothing is left to do in its place, no generation is published.

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change; all indexes are then as they were.
    """
    hold_little()
    read_bases(spec)
    run = GenerationRun(spec.base[0], spec.run_options, progress, spec.base[1:])
    if deletes_in_place(spec, given):
        return _deleted_in_place(spec, given, run)
    with run.locked():
        manifests = read_bases(spec)
        run.check_origins()
        signed = _signed(spec, given, manifests)
        if run.in_place and _was_published(spec, manifests[0], signed):
            run.drop_stages(JOB_KIND)
            for left in leftovers(run.out):
                remove_leftover(left)
            run.leave()
            return UpdateResult([], _present(run.out), done_before=True)
        _check_not_brought(spec, signed, run.brought)
        with run.stages(JOB_KIND) as store:
            last, steps = _Chain(spec, given, run, store).make(manifests, signed.inputs)
            if run.in_place and read_manifest(last, KINDS).state == manifests[0].state:
                run.leave()
                return UpdateResult(steps, _present(run.out))
            now = read_bases(spec)
            check_unchanged(
                [*(m.state for m in manifests), signed.inputs],
                [*(m.state for m in now), _signed(spec, given, now).inputs],
            )
            record = {"inputs": signed.inputs, "steps": list(steps)}
            facts = {BROUGHT: list(signed.brought.values()), _RECORD: record}
            return UpdateResult(steps, _published(run, last, manifests, facts))


def _deleted_in_place(spec: UpdateSpec, given: Given, run: GenerationRun) -> UpdateResult:
    assert given.ids is not None
    with run.locked(links=False):
        run.drop_stages(JOB_KIND)
    report = run_delete(spec.base[0], given.ids, delete_options(spec))
    return UpdateResult([{"step": "delete", **report}], _present(Path(spec.base[0])))


class _Chain:
    """The steps of one run."""

    def __init__(self, spec: UpdateSpec, given: Given, run: GenerationRun, store: StageStore) -> None:
        self._spec, self._given, self._run, self._store = spec, given, run, store

    def make(self, manifests: Sequence[Manifest], signed: str) -> tuple[Path, list[dict[str, Any]]]:
        """Make the steps that are missing; return the last index, the base if no step made one, and what was done."""
        store, steps = self._store, steps_of(self._spec, self._given, signed, manifests[0].kind)
        states, folders = [manifest.state for manifest in manifests], []
        key = ""
        for step in steps:
            key = store.key(step.name, VERSION, step.parameters, [key, *states])
            folders.append(store.path(step.name, key))
        self._run.keep_only(store, folders)
        done = max((i + 1 for i, folder in enumerate(folders) if store.is_done(folder)), default=0)
        at = folders[done - 1] / "index" if done else Path(self._spec.base[0])
        reports = json.loads((folders[done - 1] / _REPORTS).read_text())["steps"] if done else []
        for i in range(done, len(steps)):
            if steps[i].name == "compact" and not is_due(self._spec, at):
                continue
            later = [stage for step in steps[i + 1 :] for stage in step.all_stages]
            self._run.expect([*steps[i].all_stages, *later])
            progress = Prefixed(self._run.progress, steps[i].name, [*later, PUBLISH])
            report = self._make(steps[i], at, folders[i], reports, progress)
            if report is None:
                store.drop(folders[i])
                continue
            reports = [*reports, report]
            if i:
                store.drop(folders[i - 1])
            at = folders[i] / "index"
        self._run.expect([])  # what was not due does not come any more
        return at, reports

    def _make(
        self, step: Step, at: Path, folder: Path, reports: Sequence[dict[str, Any]], progress: Progress
    ) -> dict[str, Any] | None:
        """Make a step; return what it did, None if nothing."""
        begun = time.perf_counter()
        self._store.begin(folder, resume=True)
        with named(at, self._spec.base[0]):
            did = step.make(at, emptied_target(folder), progress)
        if did is None:
            return None
        report = {"step": step.name, **did}
        write_json_atomic(folder / _REPORTS, {"steps": [*reports, report]})
        self._store.finish(folder)
        self._run.seconds[step.name] = time.perf_counter() - begun
        failpoint("stage-done", step.name)
        return report


def _signed(spec: UpdateSpec, given: Given, manifests: Sequence[Manifest]) -> Signed:
    """Return `signed_inputs` of a job, whose result replaces one of the bases or none."""
    out = os.path.realpath(spec.base[0] if spec.out is None else spec.out)
    others = {base: m for base, m in zip(spec.base, manifests, strict=True) if os.path.realpath(base) != out}
    return signed_inputs(spec, given, others)


def _published(
    run: GenerationRun,
    last: Path,
    manifests: Sequence[Manifest],
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Publish the last index; of one in place that has the files of its base only the deletions.

    Parameters
    ----------
    facts : dict
        Keys of run.json.
    """
    manifest, base = read_manifest(last, KINDS), manifests[0]
    if manifest.build_id == base.build_id:
        if run.in_place:
            _publish_deletions(run.out, base, last, manifest)
            return _present(run.out)
    else:
        manifest = _made_from(manifest, manifests)
    record = {**facts[_RECORD], "build_id": manifest.build_id, "state": manifest.state}
    return run.publish(last, manifest, base.build_id, {**facts, _RECORD: record})


def _publish_deletions(out: Path, base: Manifest, last: Path, manifest: Manifest) -> None:
    """Publish the deletions of the last index as a generation that shares the files of its base, as `run_delete`."""
    n = int(manifest.input["n_vectors"])
    slots = read_deleted(last, manifest, n)
    publish_next(out, base, next_generation(out, base, following_number(out, base), n, slots))


def _made_from(manifest: Manifest, bases: Sequence[Manifest]) -> Manifest:
    """Return the manifest of the last index, made from the bases of the job: those between were never published."""
    parents = tuple(base.build_id for base in bases)
    ancestors = tuple(sorted(manifest.lineage - {manifest.build_id, *parents}))
    made = replace(manifest, parents=parents, ancestors=ancestors)
    if made.deleted is None:
        return made
    return replace(made, deleted={**made.deleted, "previous": bases[0].generation})


def _was_published(spec: UpdateSpec, present: Manifest, signed: Signed) -> bool:
    """Tell whether the present index is the result of a job with these inputs, which must not be applied again.

    Later deletions do not change that, except of a job that brings no vectors, which may compact them.
    """
    record = read_run(Path(spec.base[0])).get(_RECORD)
    if not isinstance(record, dict) or record.get("inputs") != signed.inputs:
        return False
    is_as_then = spec.brings_vectors or record.get("state") == present.state
    return is_as_then and record.get("build_id") == present.build_id


def _check_not_brought(spec: UpdateSpec, signed: Signed, before: Collection[str]) -> None:
    """Refuse a job that would bring vectors which an earlier job brought into a base.

    Files may be added again where their vectors replace those with the same user ids.

    Parameters
    ----------
    before : collection of str
        Of `brought_into`, of all bases.

    Raises
    ------
    ConfigError
        Naming the indexes and files.
    """
    again = [
        name
        for name, digest in signed.brought.items()
        if digest in before and (name in spec.base or not spec.replace)
    ]
    if again:
        key = "base" if again[0] in spec.base else "add"
        raise ConfigError(
            f"{key}: the vectors of {', '.join(again)} are in {', '.join(spec.base)} already: an earlier job, not "
            "quite this one, brought them; leave them out to do the rest of this job, or bring them once more with "
            "`indexmill append` or `indexmill merge`"
        )


def _present(out: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((out / MANIFEST_NAME).read_text())
    return manifest
