"""The steps of an update job: each makes an index in the work folder from the one before, by one operation."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexmill.formats.errors import IndexmillError
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.index.names import MANIFEST_NAME
from indexmill.formats.kinds import KINDS
from indexmill.formats.pagefile.atomic import copy_file, link_or_copy
from indexmill.pipeline.append.run import STAGES as APPENDING
from indexmill.pipeline.append.run import run_append
from indexmill.pipeline.append.taken_over import copied_bytes
from indexmill.pipeline.compact.run import STAGES as COMPACTING
from indexmill.pipeline.compact.run import changes_without_deletions, run_compact
from indexmill.pipeline.generations.delete import DeleteOptions, run_delete
from indexmill.pipeline.generations.run import PUBLISH, RunOptions
from indexmill.pipeline.merge.run import run_merge
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.update.given import Given
from indexmill.pipeline.update.spec import UpdateSpec

#: Share of deleted vectors from which ``compact = "auto"`` removes them. Hash tables are also compacted where their
#: drift advises it.
COMPACTED_FROM = 0.2

#: Writes an index at the second path from that at the first one, and returns what to report of it; None if there was
#: nothing to do, and nothing is written.
Make = Callable[[Path, Path, Progress], dict[str, Any] | None]


@dataclass(frozen=True)
class Step:
    """One step; its bytes depend on `parameters` and on the index before it.

    Attributes
    ----------
    stages : sequence of str
        What it is made of, as far as that is known before; a merge, which comes first, says it when it begins.
    """

    name: str
    parameters: dict[str, Any]
    make: Make
    stages: Sequence[str] = ()

    @property
    def all_stages(self) -> list[str]:
        """Stages as an update shows them; the step itself where it is of one piece."""
        return [f"{self.name} {stage}" for stage in [*self.stages, PUBLISH]] if self.stages else [self.name]


def steps_of(spec: UpdateSpec, given: Given, signed: str = "", kind: str = "graph") -> list[Step]:
    """Return the steps of a job in their order; a compaction that is perhaps not due is among them.

    Parameters
    ----------
    signed : str
        Of `signed_inputs`.
    kind : str
        Of the index.
    """
    found = []
    inputs = {"inputs": signed}
    if len(spec.base) > 1:
        found.append(Step("merge", inputs, lambda at, to, progress: _merged(spec, to, progress)))
    if given.ids is not None:
        found.append(Step("delete", inputs, lambda at, to, progress: _deleted(spec, given, at, to)))
    if given.open_add is not None:
        found.append(
            Step(
                "append",
                inputs,
                lambda at, to, progress: _appended(spec, given, at, to, progress),
                APPENDING[kind],
            )
        )
    if spec.compact is not False:
        found.append(
            Step("compact", {}, lambda at, to, progress: _compacted(spec, at, to, progress), COMPACTING[kind])
        )
    return found


def deletes_in_place(spec: UpdateSpec, given: Given) -> bool:
    """Tell whether a job only deletes from the index in its place, which takes no work folder."""
    in_place = spec.out is None or os.path.realpath(spec.out) == os.path.realpath(spec.base[0])
    return in_place and [step.name for step in steps_of(spec, given)] == ["delete"]


def is_due(spec: UpdateSpec, index: Path) -> bool:
    """Tell whether the compaction that a job asks for is to be made of `index`."""
    manifest = read_manifest(index, KINDS)
    n, changes = int(manifest.input["n_vectors"]), changes_without_deletions(manifest)
    advised = bool((manifest.lsh.get("drift") or {}).get("compact"))
    return is_due_of(spec, n, manifest.n_deleted, changes, advised)


def is_due_of(spec: UpdateSpec, n: int, deleted: int, changes: bool, advised: bool) -> bool:
    """Tell whether the compaction that a job asks for is to be made of `n` vectors, of which so many are `deleted`.

    Parameters
    ----------
    changes : bool
        As `changes_without_deletions` tells of the index.
    advised : bool
        Whether its drift advises to compact.
    """
    if spec.compact is True:
        return deleted > 0 or changes
    return spec.compact == "auto" and (advised or deleted >= COMPACTED_FROM * n)


def delete_options(spec: UpdateSpec) -> DeleteOptions:
    """Return how the ids of a job are deleted."""
    return DeleteOptions("vector" if spec.vector_ids else "user", spec.missing)


@contextmanager
def named(index: Path, name: str) -> Iterator[None]:
    """Let errors of a block call the index of a step by the name that the job gave it."""
    try:
        yield
    except IndexmillError as error:
        error.args = tuple(
            one.replace(str(index), name) if isinstance(one, str) else one for one in error.args
        )
        raise


def _options(spec: UpdateSpec, to: Path) -> RunOptions:
    return RunOptions(to, spec.memory, spec.workers, spec.force)


def _merged(spec: UpdateSpec, to: Path, progress: Progress) -> dict[str, Any]:
    manifest = run_merge(spec.base, _options(spec, to), progress)
    return {"indexes": len(spec.base), "vectors": manifest["input"]["n_vectors"]}


def _deleted(spec: UpdateSpec, given: Given, at: Path, to: Path) -> dict[str, Any]:
    """Delete from an index whose files are second names of those of `at`; a deletion writes to none of them.

    Raises
    ------
    BudgetError
        If they have to be copied, and the disk has no room.
    """
    assert given.ids is not None
    to.mkdir()
    manifest = read_manifest(at, KINDS)
    names = [entry.name for entry in manifest.files]
    check_free(to, copied_bytes(at, manifest, names, to), "deletion")
    for name in names:
        link_or_copy(at / name, to / name)
    copy_file(at / MANIFEST_NAME, to / MANIFEST_NAME)
    with named(to, spec.base[0]):
        return run_delete(to, given.ids, delete_options(spec))


def _appended(spec: UpdateSpec, given: Given, at: Path, to: Path, progress: Progress) -> dict[str, Any]:
    assert given.open_add is not None
    before = read_manifest(at, KINDS)
    manifest = run_append(at, given.open_add, _options(spec, to), progress, spec.replace)
    deleted = 0 if manifest.get("deleted") is None else manifest["deleted"]["vectors"]
    added = manifest["input"]["n_vectors"] - int(before.input["n_vectors"])
    return {"added": added, "replaced": deleted - before.n_deleted}


def _compacted(spec: UpdateSpec, at: Path, to: Path, progress: Progress) -> dict[str, Any] | None:
    result = run_compact(at, _options(spec, to), progress, copy_unchanged=False)
    return None if result.manifest is None else result.told()


def emptied_target(folder: Path) -> Path:
    """Return where a step writes its index; one that a killed run left there goes, scratch files beside it stay."""
    to = folder / "index"
    if os.path.lexists(to):
        shutil.rmtree(to)
    return to
