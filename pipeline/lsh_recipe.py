"""The stages of an LSH index: what each reads, what decides it, and the tasks it is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from indexmill.builders.lsh_solve import Solved
from indexmill.formats.lsh_functions import SearchDefaults
from indexmill.formats.manifest import Manifest
from indexmill.pipeline import budget, lsh, lsh_certify, lsh_emit, lsh_needs
from indexmill.pipeline.certify import read_certificate
from indexmill.pipeline.ingest import InputSummary
from indexmill.pipeline.lsh_needs import LshSize
from indexmill.pipeline.record import lsh_manifest
from indexmill.pipeline.spec import LshParameters
from indexmill.pipeline.stages import Mill, Stage, task_files


class LshSolving:
    """The stages that say what an LSH index will be like; nothing runs before `make`.

    Parameters
    ----------
    mill : Mill
    ingest : Stage
        Finished.
    p : LshParameters
    memory : int
        The budget, in bytes.
    """

    def __init__(self, mill: Mill, ingest: Stage, p: LshParameters, memory: int) -> None:
        self.mill = mill
        self.memory = memory
        vectors = str(ingest.path / "vectors.npy")
        asked = lsh_needs.asked(p)
        self.sample = self.call(
            "sample", lsh.SAMPLE_VERSION, {"metric": p.metric, "seed": p.seed}, [ingest],
            lambda: (lsh.sample_task, vectors, p.metric, p.seed),
        )  # fmt: skip
        self.solve = self.call(
            "solve", lsh.SOLVE_VERSION, {"metric": p.metric, **asdict(asked)}, [ingest, self.sample],
            lambda: (lsh.solve_task, str(ingest.path), str(self.sample.path), p.metric, asked),
        )  # fmt: skip
        self.solve.pinned = True  # later stages cannot be told without it, also in a build that goes on
        self._ingest = ingest

    def make(self) -> Solved:
        """Return the solved parameters."""
        self._ingest.pinned = True  # those that read it next are not known yet
        try:
            self.mill.make(self.solve)
            return lsh.read_solved(self.mill.read(self.solve))
        finally:
            self._ingest.pinned = False

    def call(
        self, name: str, version: int, parameters: dict[str, Any], inputs: Sequence[Stage],
        job: Callable[[], tuple[Any, ...]], steps: int = 1, unit: str = "tasks",
    ) -> Stage:  # fmt: skip
        """A stage that is one task with all threads; `job` returns the task and its arguments."""

        def write(directory: Path) -> None:
            task, *arguments = job()
            self.mill.call(directory, task, arguments, by_step=steps > 1, memory=self.memory)

        key = self.mill.store.key(name, version, parameters, [stage.key for stage in inputs])
        return Stage(name, key, self.mill.store.path(name, key), inputs, write, steps=steps, unit=unit)


class LshRecipe:
    """Builds the web of stages behind an LSH index; nothing runs before `last` is made.

    Parameters
    ----------
    solving : LshSolving
    ingest : Stage
        Finished.
    summary : InputSummary
        What it learnt.
    size : LshSize
        With the solved parameters.
    """

    def __init__(self, solving: LshSolving, ingest: Stage, summary: InputSummary, size: LshSize) -> None:
        self.mill, self.memory = solving.mill, solving.memory
        self.solving = solving
        self.ingest = ingest
        self.summary = summary
        self.size = size
        self.shape = size.shape
        self.spans = lsh_needs.spans(size, self.memory)
        self.parts: list[lsh_emit.Part] = []
        self.chains = [self._chain(group) for group in lsh_needs.groups(self.shape)]
        self.emit = self._emit()
        self.emit.pinned = True
        self.certify = self._certify()

    @property
    def last(self) -> Stage:
        """The stage that a build asks for."""
        return self.certify

    def certificate(self) -> dict[str, Any] | None:
        """Return what `certify` measured."""
        return read_certificate(self.mill.read(self.certify))

    def manifest(self) -> Manifest:
        """Return what the manifest says of the emitted files, without a certificate."""
        return lsh_manifest(self.size.resolved(), self.summary, self.mill.read(self.emit))

    def _hash(self, group: tuple[int, int]) -> Stage:
        vectors, batch = (
            str(self.ingest.path / "vectors.npy"),
            lsh_needs.hash_batch_bytes(self.size, self.memory),
        )
        tables = (group[1] - group[0]) * self.shape.n_radii
        return self._tasks(
            "hash", lsh.HASH_VERSION, {"tables": group}, [self.ingest, self.solving.solve], "chunk", self.spans,
            lsh.hash_task,
            [(vectors, self.size.plan, group, first, last, batch) for first, last in pairwise(self.spans)],
            [(last - first) * tables for first, last in pairwise(self.spans)],
        )  # fmt: skip

    def _chain(self, group: tuple[int, int]) -> Stage:
        hashed = self._hash(group)
        chunks = task_files(hashed.path, len(self.spans) - 1, "chunk")
        cuts = lsh_needs.parts(self.shape, group, self.memory)
        start, bits = group[0] * self.shape.n_radii, self.shape.hash_bits
        buffer = budget.merge_bytes(self.memory)
        stage = self._tasks(
            "chain", lsh.CHAIN_VERSION, {"block_bytes": self.shape.block_bytes}, [hashed], "part",
            [first for first, _ in cuts],
            lsh.chain_task,
            [
                (chunks, self.shape, (first - start) << bits, (last - start) << bits, buffer)
                for first, last in cuts
            ],
            [(last - first) * self.shape.n_vectors for first, last in cuts],
        )  # fmt: skip
        files = task_files(stage.path, len(cuts), "part")
        self.parts += [lsh_needs.part(file, cut) for file, cut in zip(files, cuts, strict=True)]
        return stage

    def _emit(self) -> Stage:
        p, s = self.size.parameters, self.size.solved
        defaults = SearchDefaults(p.ratio, s.candidates, p.probes)
        what = {"metric": p.metric, "defaults": asdict(defaults)}
        return self.solving.call(
            "emit", lsh_emit.VERSION, what, [*self.chains, self.solving.solve, self.ingest],
            lambda: (
                lsh_emit.emit_task, str(self.ingest.path), self.parts, self.size.plan, p.metric, s, defaults,
            ),
            steps=self.shape.n_entries, unit="entries",
        )  # fmt: skip

    def _certify(self) -> Stage:
        p, in_memory = self.size.parameters, lsh_needs.certified_in_memory(self.size, self.memory)
        return self.solving.call(
            "certify", lsh_certify.VERSION, {"seed": p.seed}, [self.emit, self.ingest],
            lambda: (
                lsh_certify.certify_task, str(self.emit.path), self.manifest(), str(self.ingest.path), p.seed,
                in_memory,
            ),
        )  # fmt: skip

    def _tasks(
        self, name: str, version: int, parameters: dict[str, Any], inputs: Sequence[Stage], suffix: str,
        cut: Sequence[int], task: Callable[..., Any], arguments: list[tuple[Any, ...]], weights: list[int],
    ) -> Stage:  # fmt: skip
        """A stage of many tasks that write one file each; `cut` decides its place but not its key."""

        def write(directory: Path) -> None:
            memory = budget.task_bytes(self.memory)
            self.mill.tasks(directory, task, arguments, suffix, memory=memory, weights=weights)

        store = self.mill.store
        key = store.key(name, version, parameters, [stage.key for stage in inputs])
        place = store.key(name, version, {"cut": list(cut)}, [key])
        return Stage(
            name, key, store.path(name, place), inputs, write, steps=sum(weights), unit="entries",
            resumable=True, temporary=True,
        )  # fmt: skip
