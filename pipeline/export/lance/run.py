"""An index of a Lance dataset, made where the dataset lies: tasks write its segments, and one transaction commits it.

An index of ours gives the centroids and the codebook, which are the same for all rows. Each task assigns the rows of
some fragments to lists. A note in the work folder says what it wrote, so a run that was killed resumes with the
fragments that are left; a fragment that changed since is one of them, and one whose segment was deleted. Another note
says what is about to be committed: the run after one that was killed after its commit cleans up, and is done.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from indexmill.formats.errors import ConfigError, InputError, OutputExistsError
from indexmill.formats.exports.lance.dataset import LanceDataset, snippet
from indexmill.formats.exports.lance.library import NAME, pylance
from indexmill.formats.exports.lists import PROBES
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.location import is_mirrored, local_name
from indexmill.pipeline.execution.executors import make_executor
from indexmill.pipeline.export.lance.tasks import (
    GROUP_BYTES,
    Group,
    Model,
    Place,
    grouped,
    model_of,
    segment_task,
    warm_up,
)
from indexmill.pipeline.generations.opened import check_there
from indexmill.pipeline.generations.scratch import LANCE_KIND, scratch_directory
from indexmill.pipeline.mill.progress import Progress, Silent, stage_progress
from indexmill.pipeline.mill.store import StageStore, held
from indexmill.pipeline.urls.remote import store_at

#: Of what `segment_task` writes.
_VERSION = 1
#: Note on the segment that is about to be committed.
_COMMITTING = "committing.json"


@dataclass(frozen=True, kw_only=True)
class DatasetOptions:
    """Options of an index that is made in a dataset.

    Attributes
    ----------
    dataset : str
        Absolute path, or URL that pylance opens.
    column : str, optional
        Of vectors; by default the only one that fits.
    executor : {"local", "ray"}
        Where segments are written. On Ray all nodes need the dataset under the same name.
    ray_address : str, optional
        Cluster to join; by default ``RAY_ADDRESS``, else one that is started here.
    workers : int
        Segments that are written at a time, on every node; they do not reach the index.
    work : str, optional
        Directory, or URL, of the notes on written segments, which all nodes need. By default it lies beside the
        dataset; for one at a URL, in the current directory.
    force : bool
        Whether an index of the column called ``COLUMN_idx`` is replaced.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    dataset: str
    column: str | None = None
    executor: str = "local"
    ray_address: str | None = None
    workers: int = 2
    work: str | None = None
    force: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= 1024:
            raise ConfigError(f"workers: expected 1 to 1024, got {self.workers}")


def run_dataset_index(
    index: str | os.PathLike[str], options: DatasetOptions, progress: Progress | None = None
) -> dict[str, Any]:
    """Make and commit an index of a dataset; a run that was killed resumes where it stopped.

    Memory: that of `segment_task` for each worker.

    Parameters
    ----------
    index : path
        An index of inverted lists, whose centroids and codebook are taken.

    Returns
    -------
    dict
        What was made (docs/guides/export-lance.md), and ``open``: code that searches it.

    Raises
    ------
    InputError
        If the dataset cannot be indexed, or changed meanwhile; if the column has an index of another name than
        ``COLUMN_idx``, or another column has one of that name.
    OutputExistsError
        If the column has an index ``COLUMN_idx``, without `force`.
    IndexmillError
        Of the kind that tells what to change.
    """
    path = Path(index)
    check_there(path)
    files = IvfFiles(path)
    shared = files.centroids
    dataset = LanceDataset(options.dataset)
    column = dataset.vector_column(options.column, shared.dim - (shared.metric == "ip"))
    name = f"{column}_idx"
    model = model_of(shared, name)
    groups = grouped(dataset.fragments(), 4 * shared.dim)
    if not groups:
        raise InputError(f"{dataset.name}: no rows; expected at least one; append rows, and run again")
    with _held(options) as store:
        run = _Run(dataset, column, groups, store, progress or Silent())
        run.begin(files.manifest.build_id, options.dataset)
        if not run.was_committed(name):
            _check_indexes(dataset, name, column, options.force)
            run.write(model, options)
            run.commit(name)
    return {
        "target": NAME,
        "dataset": dataset.name,
        "version": dataset.latest_version,
        "column": column,
        "index": name,
        "type": model.arguments["index_type"],
        "lists": shared.n_lists,
        "metric": shared.metric,
        "rows": run.n_rows,
        "fragments": sum(len(group.fragments) for group in groups),
        "segments": len(groups),
        "reused": run.reused,
        "index_build_id": files.manifest.build_id,
        "open": snippet(options.dataset, column, shared.dim, min(PROBES, shared.n_lists)),
    }


def _check_indexes(dataset: LanceDataset, name: str, column: str, force: bool) -> None:
    """Raise an error unless `name` can be the only index of the column."""
    for other, columns in dataset.indexes().items():
        if other == name and columns == [column]:
            if not force:
                raise OutputExistsError(
                    f"dataset: {dataset.name} has an index {name!r}; add --force to replace it"
                )
        elif other == name or columns == [column]:
            raise InputError(
                f"{dataset.name}: has an index {other!r} of {', '.join(columns)}; expected none, or {name!r} of "
                f"{column}; drop it with dataset.drop_index({other!r}), and run again"
            )


class _Run:
    """One run on an open dataset: the segments that are missing, then the commit."""

    def __init__(
        self, dataset: LanceDataset, column: str, groups: list[Group], store: StageStore, progress: Progress
    ) -> None:
        self.dataset = dataset
        self.column = column
        self.groups = groups
        self.store = store
        self.progress = progress
        self.n_rows = sum(group.rows for group in groups)
        #: Segments that an earlier run wrote.
        self.reused = 0
        self._notes = Path()

    def begin(self, build_id: str, uri: str) -> None:
        """Find the notes of earlier runs; `build_id` is that of the index that the model comes from."""
        what = {
            "dataset": uri, "column": self.column, "field": self.dataset.field_id(self.column),
            "index": build_id, "pylance": pylance().__version__,
        }  # fmt: skip
        self._notes = self.store.path("segments", self.store.key("segments", _VERSION, what, []))
        self.store.drop_copies(self._notes)  # another machine may have noted other segments since
        self.store.begin(self._notes, resume=True)

    def was_committed(self, name: str) -> bool:
        """Clean up after a run that was killed after its commit; return whether its index is that of all rows."""
        if _COMMITTING not in self.store.files(self._notes):
            return False
        note = json.loads((self.store.fetch(self._notes) / _COMMITTING).read_text())
        if note["uuid"] not in self.dataset.segments(name):
            return False
        self._clean_up(note)
        self.store.begin(self._notes, resume=True)
        self.reused = len(self.groups)
        return bool(note["groups"] == [group.state for group in self.groups])

    def write(self, model: Model, options: DatasetOptions) -> None:
        """Write the segments without a note."""
        written = self._written()
        missing = [group for group in self.groups if group not in written]
        self.reused = len(self.groups) - len(missing)
        with stage_progress(self.progress, "segments", self.n_rows, "vectors"):
            self.progress.advance(self.n_rows - sum(group.rows for group in missing))
            if missing:
                self._write(missing, model, options)

    def _written(self) -> set[Group]:
        """Return the groups whose segments an earlier run wrote; a note on one that was deleted since is deleted."""
        names = self.store.files(self._notes)
        noted = [group for group in self.groups if _note_name(group) in names]
        if not noted:
            return set()
        whole = dict(zip(noted, self.dataset.are_whole(self._texts(noted)), strict=True))
        for group in noted:
            if not whole[group]:
                self.store.forget(self._notes / _note_name(group))
        return {group for group in noted if whole[group]}

    def _texts(self, groups: list[Group]) -> list[str]:
        """Return the descriptions of the segments of groups, from their notes."""
        folder = self.store.fetch(self._notes)
        return [(folder / _note_name(group)).read_text() for group in groups]

    def _write(self, missing: list[Group], model: Model, options: DatasetOptions) -> None:
        place = Place(options.dataset, self.dataset.version, self.column)
        executor = make_executor(options.executor, options.workers, options.ray_address, warm_up=warm_up)
        try:
            shared = executor.share(model)
            calls = [
                self.store.file_task(
                    segment_task, (place, shared, group, str(uuid4())), self._notes / _note_name(group)
                )
                for group in missing
            ]
            results = executor.map(calls[0][0], [call[1:] for call in calls])
            with closing(results):  # no task outlives an error here
                for group, _ in zip(missing, results, strict=True):
                    self.progress.advance(group.rows)
        finally:
            executor.close()

    def commit(self, name: str) -> None:
        """Merge the segments and commit the index, unless the dataset changed; then delete what is left of them.

        Raises
        ------
        InputError
            If there is another version of the dataset by now, or the commit fails. The segments stay for the next
            run.
        """
        dataset = self.dataset
        with stage_progress(self.progress, "commit", len(self.groups), "segments"):
            segments = self._texts(self.groups)
            self._check_version()
            merged = dataset.merged(segments)
            self._check_version()  # merging takes a while
            states = [group.state for group in self.groups]
            note = {"uuid": merged.uuid, "segments": segments, "groups": states}
            task, *arguments = self.store.file_task(_note, (note,), self._notes / _COMMITTING)
            task(*arguments)
            dataset.commit(name, self.column, merged)
            self._clean_up(note)
            self.progress.advance(len(segments))

    def _clean_up(self, note: dict[str, Any]) -> None:
        """Delete the segments that were merged into the one that was committed, then all notes."""
        try:
            self.dataset.remove_merged(note["segments"], note["uuid"])
        except OSError as error:
            warnings.warn(
                f"{self.dataset.name}: the index is committed, but {error.filename} cannot be deleted "
                f"({error.strerror}); cleanup_old_versions of Lance removes it",
                stacklevel=2,
            )
        self.store.drop(self._notes)

    def _check_version(self) -> None:
        """Raise InputError if there is another version of the dataset by now."""
        version, latest = self.dataset.version, self.dataset.latest_version
        if latest != version:
            raise InputError(
                f"{self.dataset.name}: version {version} was indexed, and the dataset is at version {latest} now; "
                f"expected that nothing writes to it meanwhile; run again: only groups of fragments "
                f"({GROUP_BYTES >> 20} MiB) that changed are indexed again"
            )


def _note_name(group: Group) -> str:
    return f"{group.state}.json"


def _note(note: dict[str, Any], out: str) -> None:
    Path(out).write_text(json.dumps(note))


@contextmanager
def _held(options: DatasetOptions) -> Iterator[StageStore]:
    """Hold the store of the notes for the length of a block.

    A local one is deleted at the end; after a failure only if it has no notes.
    """
    if is_mirrored(options.work):
        with held(store_at(options.work), keep=True) as store:  # the folder is the user's
            yield store
    else:
        store = StageStore(_work_directory(options))
        with store.until_done():
            yield store


def _work_directory(options: DatasetOptions) -> Path:
    """Return the directory of the notes on this machine."""
    beside = Path(os.path.abspath(local_name(options.dataset)))
    return scratch_directory(beside, options.work, LANCE_KIND)
