"""The stages that recipes of all kinds are made of: of one task, or of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from indexmill.formats.index.manifest import Manifest
from indexmill.pipeline.kinds.common import cluster
from indexmill.pipeline.kinds.common.certify import read_certificate
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.memory import task_bytes
from indexmill.pipeline.kinds.common.parameters import KindParameters
from indexmill.pipeline.kinds.common.record import emitted_manifest
from indexmill.pipeline.mill.stages import Mill, Stage


class Recipe:
    """Stages that depend on each other. Making `certify`, the last one, makes those that are not made yet.

    Parameters
    ----------
    mill : Mill
    ingest : Stage
        Finished.
    summary : InputSummary
        The facts that ingest found.
    memory : int
        The budget, in bytes.

    Attributes
    ----------
    p : KindParameters
        As resolved; each recipe sets those of its kind.
    emit, certify : Stage
        The stage whose files are published, and the last stage; see `_end`.
    """

    p: Any
    emit: Stage
    certify: Stage

    def __init__(self, mill: Mill, ingest: Stage, summary: InputSummary, memory: int) -> None:
        self.mill = mill
        self.ingest = ingest
        self.summary = summary
        self.memory = memory
        self.vectors = str(ingest.path / "vectors.npy")
        self.by_vector = (summary.n_vectors, "vectors")

    def certificate(self) -> dict[str, Any] | None:
        """Return the certificate."""
        return read_certificate(self.mill.read(self.certify))

    def run_facts(self) -> dict[str, Any]:
        """Return what else run.json says of the build."""
        return {}

    def shared_files(self) -> list[tuple[Stage, str]]:
        """Return the files that the parts of a set have in common: the stage that makes each, and its name."""
        return []

    def shared_parameters(self) -> dict[str, Any]:
        """Return the parameters that the parts of a set have in common, though a job may leave them open."""
        return {}

    def manifest(self) -> Manifest:
        """Return the manifest of the emitted files, without a certificate."""
        parameters: KindParameters = self.p
        return emitted_manifest(parameters, self.summary, self.mill.read(self.emit))

    def _end(
        self, emit: Stage, version: int, job: Callable[[], tuple[Any, ...]], beside: Sequence[Stage] = ()
    ) -> None:
        """Set the last two stages: `emit`, and *certify*, which reads it and the stages `beside` and runs `job`."""
        emit.pinned = True
        self.emit = emit
        self.certify = self._call(
            "certify", version, {"seed": self.p.seed}, [emit, *beside, self.ingest], job
        )

    def _at_once(self, name: str) -> int | None:
        """Return how many narrow tasks of a stage fit the budget side by side; None: as many as there are workers."""
        return None

    def _sample_stage(self, n_sample: int, seed: int) -> Stage:
        """Return stage *sample*: rows for training."""
        return self._call(
            "sample", cluster.SAMPLE_VERSION, {"vectors": n_sample, "seed": seed}, [self.ingest],
            lambda: (cluster.sample_task, self.vectors, n_sample, seed),
        )  # fmt: skip

    def _stage(
        self, name: str, version: int, parameters: dict[str, Any], inputs: Sequence[Stage],
        run: Callable[[Path], None], *, cut: Sequence[int] = (), **options: Any,
    ) -> Stage:  # fmt: skip
        """Return a stage; `cut`, its division into tasks, decides its directory but not its key."""
        key = self.mill.store.key(name, version, parameters, [stage.key for stage in inputs])
        place = self.mill.store.key(name, version, {"cut": list(cut)}, [key]) if cut else key
        return Stage(name, key, self.mill.store.path(name, place), inputs, run, **options)

    def _call(
        self, name: str, version: int, parameters: dict[str, Any], inputs: Sequence[Stage],
        job: Callable[[], tuple[Any, ...]], *, counts: tuple[int, str] | None = None, cut: Sequence[int] = (),
    ) -> Stage:  # fmt: skip
        """Return a stage that is one task with all threads; `job` returns the task and its arguments.

        `counts` has the steps of a task that reports progress, and their unit; `cut` is as of `_stage`.
        """

        def write(directory: Path) -> None:
            task, *arguments = job()
            self.mill.call(directory, task, arguments, by_step=counts is not None, memory=self.memory)

        steps, unit = counts or (1, "tasks")
        return self._stage(name, version, parameters, inputs, write, cut=cut, steps=steps, unit=unit)

    def _tasks(
        self, name: str, version: int, parameters: dict[str, Any], inputs: Sequence[Stage], suffix: str,
        cut: Sequence[int], jobs: Callable[[], tuple[Any, list[tuple[Any, ...]]]],
        weights: Callable[[], list[int]], *, unit: str, wide: bool = False,
    ) -> Stage:  # fmt: skip
        """Return a stage of many tasks that write one file each; the files go when every reader is finished."""

        def write(directory: Path) -> None:
            task, arguments = jobs()
            memory, at_once = (self.memory, None) if wide else (task_bytes(self.memory), self._at_once(name))
            self.mill.tasks(
                directory,
                task,
                arguments,
                suffix,
                wide=wide,
                memory=memory,
                at_once=at_once,
                weights=weights(),
            )

        return self._stage(
            name, version, parameters, inputs, write, cut=cut, resumable=True, temporary=True, unit=unit,
            steps=lambda: sum(weights()),
        )  # fmt: skip

    def _by_rows(
        self, name: str, version: int, parameters: dict[str, Any], inputs: Sequence[Stage], suffix: str,
        bounds: Sequence[int], job: Callable[[], tuple[Any, tuple[Any, ...], tuple[Any, ...]]], *,
        cut: Sequence[int] = (), steps: int = 1, unit: str = "vectors",
    ) -> Stage:  # fmt: skip
        """Return a stage with a task for the rows between each of `bounds` and the next; see `_tasks`.

        `job` returns the task, and its arguments before and behind the first and the last row. A row counts as `steps`.
        """

        def jobs() -> tuple[Any, list[tuple[Any, ...]]]:
            task, before, behind = job()
            return task, [(*before, first, last, *behind) for first, last in pairwise(bounds)]

        return self._tasks(
            name, version, parameters, inputs, suffix, [*cut, *bounds], jobs,
            lambda: [steps * size for size in sizes_of(bounds)], unit=unit,
        )  # fmt: skip


def sizes_of(bounds: Sequence[int]) -> list[int]:
    """Return how many items lie between each bound and the next."""
    return [last - first for first, last in pairwise(bounds)]
