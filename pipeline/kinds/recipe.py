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
from indexmill.pipeline.mill.stages import Mill, Stage


class Recipe:
    """A web of stages; nothing runs before `certify`, its last one, is made.

    Parameters
    ----------
    mill : Mill
    ingest : Stage
        Finished.
    summary : InputSummary
        What it learnt.
    memory : int
        The budget, in bytes.

    Attributes
    ----------
    emit, certify : Stage
        What a build publishes, and what is made last.
    """

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
        """Return what `certify` measured."""
        return read_certificate(self.mill.read(self.certify))

    def manifest(self) -> Manifest:
        """Return what the manifest says of the emitted files, without a certificate."""
        raise NotImplementedError

    def _at_once(self, name: str) -> int | None:
        """Return how many of a stage's narrow tasks fit the budget beside each other; None for as many as workers."""
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
        """Return a stage; `cut`, how it is divided into tasks, decides its place but not its key."""
        key = self.mill.store.key(name, version, parameters, [stage.key for stage in inputs])
        place = self.mill.store.key(name, version, {"cut": list(cut)}, [key]) if cut else key
        return Stage(name, key, self.mill.store.path(name, place), inputs, run, **options)

    def _call(
        self, name: str, version: int, parameters: dict[str, Any], inputs: Sequence[Stage],
        job: Callable[[], tuple[Any, ...]], *, counts: tuple[int, str] | None = None, cut: Sequence[int] = (),
    ) -> Stage:  # fmt: skip
        """A stage that is one task with all threads; `job` returns the task and its arguments.

        `counts` says how many of what a task that tells how far it is goes through; `cut` is as of `_stage`.
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
        """A stage of many tasks that write one file each, which go when everybody has read them."""

        def write(directory: Path) -> None:
            task, arguments = jobs()
            memory = self.memory if wide else task_bytes(self.memory)
            at_once = None if wide else self._at_once(name)
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


def sizes_of(bounds: Sequence[int]) -> list[int]:
    """Return how many items lie between each bound and the next."""
    return [last - first for first, last in pairwise(bounds)]
