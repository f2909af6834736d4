"""Stages: each knows which stages it reads, is made when one that reads it is wanted, and dropped after the last.

A stage that is finished is never made again, and neither is what only it would have read; so a build that was
killed asks for its last stage and redoes just what is missing. A chunk file that turns out to be damaged is
deleted and its task run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from indexmill.formats.errors import FormatError
from indexmill.pipeline.execution.allocator import give_back
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.execution.local import Executor
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.mill.store import StageStore

#: Times a stage is tried when its input turns out to be damaged.
_TRIES = 3


@dataclass(eq=False)
class Stage:
    """One step of a build.

    Attributes
    ----------
    name, key : str
        Where its outputs lie, and what they depend on.
    path : Path
    inputs : sequence of Stage
        The stages whose files it reads.
    run : callable
        Fills the directory it is given.
    steps, unit
        What progress shows; a callable is asked when the stage begins.
    resumable : bool
        Whether it is made of tasks whose whole files a killed run may leave.
    temporary : bool
        Whether it goes as soon as every consumer is finished, even if other stages are kept.
    pinned : bool
        Whether it stays to the end, because it is what the build is for.
    """

    name: str
    key: str
    path: Path
    inputs: Sequence[Stage]
    run: Callable[[Path], None]
    steps: int | Callable[[], int] = 1
    unit: str = "tasks"
    resumable: bool = False
    temporary: bool = False
    pinned: bool = False
    consumers: list[Stage] = field(default_factory=list)

    def __post_init__(self) -> None:
        for stage in self.inputs:
            stage.consumers.append(self)


class Mill:
    """Makes stages on an executor, in a store.

    Parameters
    ----------
    keep : bool
        Whether stages that are not temporary stay for later builds.
    whole : str
        What a full disk leaves as it was, if not an output that is not there yet.
    resumes : bool
        Whether the store outlives a run that fails.
    """

    def __init__(
        self,
        store: StageStore,
        executor: Executor,
        progress: Progress,
        keep: bool,
        whole: str = "",
        resumes: bool = True,
    ) -> None:
        self.store = store
        self.executor = executor
        self.progress = progress
        self.keep = keep
        self._whole = whole
        self._resumes = resumes
        self._finished: set[Stage] = set()
        #: Seconds that each stage took.
        self.seconds: dict[str, float] = {}

    def make(self, stage: Stage) -> Path:
        """Return the directory of a finished stage, making it and what it needs first.

        Raises
        ------
        IndexmillError
            As the stage's tasks do, and if the store outgrows its budget.
        """
        if not self.store.is_done(stage.path):
            for tries_left in reversed(range(_TRIES)):
                for needed in stage.inputs:
                    self.make(needed)
                try:
                    self._run(stage)
                    break
                except FormatError as error:
                    if not tries_left or not self._forget(stage, error):
                        raise
        elif stage.name not in self.seconds:
            self.seconds[stage.name] = 0.0
            self.progress.start(stage.name, 1, stage.unit)
            self.progress.finish("reused")
        self._release(stage)
        return stage.path

    def read(self, stage: Stage) -> Path:
        """Return the directory of a finished stage, with its files on this machine."""
        return self.store.fetch(stage.path)

    def call(
        self,
        directory: Path,
        task: Callable[..., Any],
        arguments: Sequence[Any],
        *,
        by_step: bool,
        memory: int,
    ) -> None:
        """Run one wide task that writes into a stage's directory; a task that is `by_step` reports its progress."""
        advance = self.progress.advance if by_step else None
        wrapped = self.store.directory_task(task, tuple(arguments), directory)
        self.executor.call(*wrapped, advance=advance, memory=memory)

    def tasks(
        self,
        directory: Path,
        task: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        suffix: str,
        *,
        wide: bool = False,
        memory: int = 0,
        at_once: int | None = None,
        weights: Sequence[int],
    ) -> list[str]:
        """Run tasks that write one numbered file each into a stage's directory; see `files`.

        Returns
        -------
        list of str
            The files, in the order of `arguments`.
        """
        files = task_files(directory, len(arguments), suffix)
        names = [Path(file).name for file in files]
        self.files(
            directory, task, arguments, names, wide=wide, memory=memory, at_once=at_once, weights=weights
        )
        return files

    def files(
        self,
        directory: Path,
        task: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        names: Sequence[str],
        *,
        wide: bool = False,
        memory: int = 0,
        at_once: int | None = None,
        weights: Sequence[int],
    ) -> None:
        """Run tasks that write one file each into a stage's directory; files that are there already are kept.

        Parameters
        ----------
        names : sequence of str
            Of the files, in the order of `arguments`.
        memory, at_once
            As of `Executor.map`.
        weights : sequence of int
            Steps of progress that each task stands for; wide tasks on this machine report them as they go.
        """
        there = self.store.files(directory)
        missing = [i for i, name in enumerate(names) if name not in there]
        if kept := sum(weights) - sum(weights[i] for i in missing):
            self.progress.advance(kept)
        reported = 0

        def advance(steps: int) -> None:
            nonlocal reported
            reported += steps
            self.progress.advance(steps)

        wrapped = [self.store.file_task(task, arguments[i], directory / names[i]) for i in missing]
        if not wrapped:
            return
        within = advance if wide else None
        run, calls = wrapped[0][0], [w[1:] for w in wrapped]
        results = self.executor.map(run, calls, wide=wide, memory=memory, at_once=at_once, advance=within)
        with closing(results):  # no task outlives an error here
            for i, _ in zip(missing, results, strict=True):
                self.progress.advance(max(weights[i] - reported, 0))
                reported = 0
                self.store.check_space()

    def _run(self, stage: Stage) -> None:
        begun = time.perf_counter()
        self.progress.start(stage.name, stage.steps() if callable(stage.steps) else stage.steps, stage.unit)
        failpoint("stage-begun", stage.name)
        with told_when_full(partial(self._told, stage)):
            self.store.begin(stage.path, stage.resumable)
            stage.run(stage.path)
            give_back()
            self.store.check_space()
            self.store.finish(stage.path)
        failpoint("stage-done", stage.name)
        seconds = time.perf_counter() - begun
        self.seconds[stage.name] = self.seconds.get(stage.name, 0.0) + seconds
        self.progress.finish(f"{seconds:.1f} s")

    def _told(self, stage: Stage, path: str, reason: str) -> str:
        """Say that the work directory is full, and what to do."""
        of = f" of this run; {self._whole}" if self._whole else " of this build"
        kept = "; finished stages are kept" if self._resumes else ""
        return (
            f"scratch: {path or stage.path}: {reason} in stage {stage.name}, beside {self.store.known_bytes():,} bytes"
            f"{of}; free some space or name another --work, and run again{kept}"
        )

    def _forget(self, stage: Stage, error: FormatError) -> bool:
        """Delete the damaged file if it is one of the stage's inputs; return whether it was."""
        for needed in stage.inputs:
            if error.path is not None and needed.path.name in Path(error.path).parts:
                self.store.forget(needed.path / Path(error.path).name)
                self._finished.discard(needed)
                return True
        return False

    def _release(self, stage: Stage) -> None:
        """Drop the inputs of a finished stage that no other stage waits for."""
        self._finished.add(stage)
        for needed in stage.inputs:
            waiting = any(self._is_wanted(consumer) for consumer in needed.consumers)
            if not waiting and not needed.pinned and (needed.temporary or not self.keep):
                self.store.drop(needed.path)

    def _is_wanted(self, stage: Stage) -> bool:
        """Tell whether a stage is still to be made: one whose readers are all finished is not needed again."""
        if stage in self._finished or self.store.is_done(stage.path):
            return False
        return not stage.consumers or any(self._is_wanted(consumer) for consumer in stage.consumers)


def stages_of(last: Stage) -> list[Stage]:
    """Return the stages that `last` depends on, then `last`, each once, in the order they are made."""
    found: dict[int, Stage] = {}

    def visit(stage: Stage) -> None:
        for needed in stage.inputs:
            visit(needed)
        found.setdefault(id(stage), stage)

    visit(last)
    return list(found.values())


def task_files(directory: Path, count: int, suffix: str) -> list[str]:
    """Return the files of a stage made of `count` tasks, in order."""
    return [str(directory / f"{i:06d}.{suffix}") for i in range(count)]
