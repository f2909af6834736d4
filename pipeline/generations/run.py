"""One run that makes the next generation of an index: its output, its stages, their times, and publishing.

Everything is prepared beside the output or in a directory that the caller names, so a killed run leaves the index
as it was. The next one starts over, or resumes if it is made of stages of a mill.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from indexmill.formats.errors import ConfigError, FormatError, IndexReplaced, OtherKind
from indexmill.formats.index.manifest import Manifest, check_copied, parse_manifest
from indexmill.formats.index.names import MANIFEST_NAME
from indexmill.formats.pagefile.atomic import can_link
from indexmill.pipeline.execution.local import LocalExecutor
from indexmill.pipeline.generations.brought import brought_into, with_brought
from indexmill.pipeline.generations.keep import check_keep, check_links, keep_earlier, newest
from indexmill.pipeline.generations.removal import remove_others
from indexmill.pipeline.generations.scratch import emptied, note_replaced, scratch_directory
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.mill.disk_space import check_room
from indexmill.pipeline.mill.peak import PeakMemory
from indexmill.pipeline.mill.progress import Foreseeing, Progress, Silent
from indexmill.pipeline.mill.publish import (
    bring_back,
    check_output,
    leftovers,
    output_lock,
    publish,
    remove_leftover,
)
from indexmill.pipeline.mill.record import now, run_record
from indexmill.pipeline.mill.stages import Mill, Stage, stages_of
from indexmill.pipeline.mill.status import StatusFile
from indexmill.pipeline.mill.store import LOCK_NAME, StageStore
from indexmill.pipeline.spec import DEFAULT_MEMORY

if TYPE_CHECKING:
    from indexmill.reader.index import Index

#: The last stage of every run.
PUBLISH = "publish"


@dataclass(frozen=True)
class RunOptions:
    """Output and limits of a run.

    Only `memory` can change the bytes: it limits what the choice of a layout may look at
    (`pipeline.relayout.auto.memory_record`), and whether a merge builds its graph anew (`pipeline.merge.anew`).

    Attributes
    ----------
    out : path, optional
        By default the (first) index, which is replaced by its next generation.
    memory : int
        Bytes beside the page cache.
    workers : int
        Threads.
    force : bool
        Whether another index at `out` may be replaced, and indexes merged that have vectors in common.
    work : path, optional
        Directory for scratch files; by default they lie beside the output.
    keep_generations : int, optional
        How many stay of an index that is replaced by its next generation, as `pipeline.generations.keep` says.
    """

    out: str | os.PathLike[str] | None = None
    memory: int = DEFAULT_MEMORY
    workers: int = 2
    force: bool = False
    work: str | os.PathLike[str] | None = None
    keep_generations: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= 1024:
            raise ConfigError(f"workers: expected 1 to 1024, got {self.workers}")
        if self.memory < 1:
            raise ConfigError(f"memory: expected a positive number of bytes, got {self.memory}")
        check_keep(self.keep_generations)


class GenerationRun:
    """One run on the index at `index`.

    Attributes
    ----------
    out : Path
    in_place : bool
        Whether `out` is the index itself.
    seconds : dict
        Of each stage so far.
    brought : list of str
        What jobs brought into the indexes that the run reads (`generations.brought`), once its output is locked; the
        result names it, too.

    Parameters
    ----------
    others : sequence of path
        Further indexes that the run reads.
    """

    def __init__(
        self,
        index: str | os.PathLike[str],
        options: RunOptions,
        progress: Progress | None = None,
        others: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        self.options = options
        self.progress = progress or Silent()
        self.seconds: dict[str, float] = {}
        self._memory = PeakMemory()
        self._started = now()
        # Where the paths of the indexes lead, which may be links; and the state of each index when the run began.
        self._origins = {Path(one): Path(os.path.realpath(one)) for one in (index, *others)}
        self._before: dict[Path, str | None] = {}
        self.brought: list[str] = []
        self.out = Path(os.path.realpath(index if options.out is None else options.out))
        self.in_place = self.out == self._origins[Path(index)]

    @contextmanager
    def working(self) -> Iterator[Path]:
        """Take the output and yield a scratch directory; BLAS runs on one thread, for equal bytes."""
        scratch = scratch_directory(self.out, self.options.work)
        with self.locked(), emptied(scratch):
            store = StageStore(scratch)
            try:
                with self._shown(store):
                    yield scratch
            finally:
                store.close()

    @contextmanager
    def locked(self, links: bool = True) -> Iterator[None]:
        """Take the output; BLAS runs on one thread, for equal bytes.

        Parameters
        ----------
        links : bool
            Whether earlier generations that are kept need second names of their files.

        Raises
        ------
        BudgetError
            If a disk is full.
        ConfigError
            If generations of another index are to be kept, or an index cannot be given its name back.
        IndexReplaced
            In place of a FormatError or FileNotFoundError, if an index that the run reads was replaced meanwhile.
        """
        with (
            self._memory,
            threadpool_limits(1),
            output_lock(self.out),
            told_when_full(self._disk_full_message),
        ):
            check_output(self.out, self.options.force or self.in_place)
            self._check_keep(links)
            for given, origin in self._origins.items():
                bring_back(origin)
                self._before[given] = _state(origin)
                self.brought += brought_into(origin)
            try:
                yield
            except (FormatError, FileNotFoundError) as error:
                try:
                    self.check_origins()
                except IndexReplaced as replaced:
                    raise replaced from error
                raise

    def check_room(self, scratch: Path, like: Manifest, n: int) -> None:
        """Refuse an output without room for the new index, where files of `scratch` can have no second names there.

        What a killed run left beside the output goes first.

        Parameters
        ----------
        scratch : Path
            Of `working`, or the root of a store.
        like : Manifest
            Of an index of which a vector takes as many bytes.
        n : int
            Vectors of the new index.

        Raises
        ------
        BudgetError
            Naming the directory, what is needed and what is free.
        """
        if can_link(scratch / LOCK_NAME, self.out.parent):
            return
        for leftover in leftovers(self.out):
            remove_leftover(leftover)
        size = sum(entry.bytes for entry in like.files)
        check_room(self.out, size * n // int(like.input["n_vectors"]), "new index")

    def check_origins(self) -> None:
        """Check that the indexes which the run reads are those that were there when it began.

        To be called once all are open, and after one was read by its path again: the output is locked against other
        runs, other indexes are not, and a path may be a link that moves.

        Raises
        ------
        IndexReplaced
            Naming one that is not.
        """
        for given, state in self._before.items():
            origin = self._origins[given]
            if Path(os.path.realpath(given)) != origin or _state(origin) != state:
                raise replaced_meanwhile(str(given))

    @contextmanager
    def reading(self, index: Path) -> Iterator[None]:
        """Open an index by its path in the block, which may be one that the run has opened before.

        Raises
        ------
        IndexReplaced
            If it is, and was replaced meanwhile, whether the block raises another error or not.
        """
        try:
            yield
        finally:
            if index in self._origins:
                self.check_origins()

    def searched(self, index: Path) -> Index:
        """Open an index for searches, as `reading` does."""
        from indexmill.reader.index import Index

        with self.reading(index), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of reads by pread, where the system has no io_uring
            return Index(index)

    def _check_keep(self, links: bool) -> None:
        """Refuse before the work what cannot be kept after it."""
        keep = self.options.keep_generations
        if keep is None or not (self.out / MANIFEST_NAME).is_file():
            return
        if not self.in_place:
            raise ConfigError(
                f"keep_generations: {self.out} is replaced by an index that was not made from it, so none of its "
                "generations stays; leave keep_generations out, or name another --out"
            )
        newest(self.out, keep)
        if links and keep > 1:
            check_links(self.out)

    @property
    def whole(self) -> str:
        """What a full disk leaves as it was, in words."""
        return "the index is as it was" if self.in_place else "nothing was published"

    def _disk_full_message(self, path: str, reason: str) -> str:
        """Say that a disk is full, and what to do."""
        remedy = "free some space, or name another --work or --out, and run again"
        return f"{path or self.out}: {reason}; {self.whole}; {remedy}"

    @contextmanager
    def stages(self, kind: str) -> Iterator[StageStore]:
        """Yield the store of a run that resumes: the finished stages of a run that failed or was killed stay there.

        A run that fails before a stage has written anything leaves none.
        """
        store = StageStore(scratch_directory(self.out, self.options.work, kind))
        with store.until_done(), self._shown(store):
            yield store

    def keep_only(self, store: StageStore, stages: Collection[Path]) -> None:
        """Drop all other stages of a store, and note for `gc` which index those that stay are to replace."""
        store.drop_others(stages)
        if (state := _state(self.out)) is not None:
            note_replaced(store.root, state)

    @contextmanager
    def mill(self, kind: str) -> Iterator[Mill]:
        """Yield a mill that keeps its stages as `stages` does."""
        with self.stages(kind) as store:
            executor = LocalExecutor(self.options.workers)
            try:
                yield Mill(store, executor, self.progress, keep=False, whole=self.whole)
            finally:
                executor.close()

    def make(self, mill: Mill, last: Stage) -> None:
        """Make the stage behind which the run publishes, with what it needs and what is pinned; other stages go."""
        stages = stages_of(last)
        self.keep_only(mill.store, {stage.path for stage in stages})
        self.expect(stage.name for stage in stages)
        for stage in stages:
            if stage.pinned or stage is last:
                mill.make(stage)
        self.seconds.update(mill.seconds)

    @contextmanager
    def _shown(self, store: StageStore) -> Iterator[None]:
        """Keep a status file in `store`, for ``indexmill status``."""
        status = StatusFile(self.progress, store, self._memory, self.options.memory)
        status.expect([])
        with status:
            self.progress = status
            yield

    def expect(self, stages: Iterable[str]) -> None:
        """Name the stages that come before the run publishes, in order, for ``indexmill status``."""
        if isinstance(self.progress, Foreseeing):
            self.progress.expect([*stages, PUBLISH])

    def drop_stages(self, kind: str) -> None:
        """Remove the store of a run that was killed after it published; nothing resumes with it."""
        directory = scratch_directory(self.out, self.options.work, kind)
        if directory.is_dir():
            shutil.rmtree(directory)

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        """Time and show a stage; yields what counts its steps."""
        begun = time.perf_counter()
        self.progress.start(name, total, unit)
        yield self.progress.advance
        seconds = time.perf_counter() - begun
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.progress.finish(f"{seconds:.1f} s")

    @contextmanager
    def task(self, name: str) -> Iterator[None]:
        """Time and show a stage of one step."""
        with self.stage(name, 1, "tasks") as advance:
            yield
            advance(1)

    def leave(self) -> None:
        """Leave an index as it is, with as many generations as are to be kept, if that is said."""
        keep = self.options.keep_generations
        if self.in_place and keep is not None:
            remove_others(self.out, newest(self.out, keep))

    def publish(
        self, directory: Path, manifest: Manifest, replaced: str, facts: dict[str, Any]
    ) -> dict[str, Any]:
        """Publish the files of `directory` under `manifest`, and return the manifest as it stands there.

        A run in place keeps earlier generations (`pipeline.generations.keep`).

        Parameters
        ----------
        replaced : str
            Build id of the index that a run in place started from.
        facts : dict
            Further keys of run.json, beside times and memory.

        Raises
        ------
        IndexReplaced
            If another index has taken its place meanwhile.
        FormatError, FileNotFoundError
            If `directory` is an index that the run reads, whose files are not those of `manifest` any more.
        """
        options = self.options
        facts = with_brought(facts, self.brought)
        record = run_record(
            self._started, self.seconds, options.workers, "local", None, options.memory, self._memory.bytes, **facts
        )  # fmt: skip
        with self.stage(PUBLISH, len(manifest.files), "files") as advance:
            if self.in_place and parse_manifest(self.out).build_id != replaced:
                raise replaced_meanwhile(f"out: {self.out}")
            fill = None
            if self.in_place:
                fill = partial(keep_earlier, self.out, keep=options.keep_generations)
            elif directory in self._origins:
                fill = partial(_check_copy, manifest)
            force = options.force or self.in_place
            publish(directory, manifest, record, self.out, force, keep=False, fill=fill)
            advance(len(manifest.files))
        published: dict[str, Any] = json.loads((self.out / MANIFEST_NAME).read_text())
        return published


def _check_copy(manifest: Manifest, directory: Path) -> None:
    """Raise FormatError unless `directory` has the files of `manifest`."""
    for entry in manifest.files:
        check_copied(directory, manifest, entry)


def _state(index: Path) -> str | None:
    """Return the state of an index, None if there is none that can be read."""
    try:
        return parse_manifest(index).state
    except (FormatError, OtherKind, OSError):
        return None


def replaced_meanwhile(what: str) -> IndexReplaced:
    """Return the error of an index, named in words, that another run replaced while it was read."""
    return IndexReplaced(f"{what} was replaced meanwhile; run again to work on what is there now")
