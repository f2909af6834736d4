"""The stages of an LSH index: what each reads, what decides it, and the tasks it is made of."""

from __future__ import annotations

from dataclasses import asdict

from indexmill.builders.lsh.solve import Solved
from indexmill.formats.lsh.functions import SearchDefaults
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.memory import sort_buffer_bytes
from indexmill.pipeline.kinds.lsh import certify, emit, tasks
from indexmill.pipeline.kinds.lsh.memory import certified_in_memory
from indexmill.pipeline.kinds.lsh.parameters import LshParameters
from indexmill.pipeline.kinds.lsh.shape import SolvedShape, asked_of, groups, parts
from indexmill.pipeline.kinds.recipe import Recipe
from indexmill.pipeline.mill.stages import Mill, Stage, task_files


class LshRecipe(Recipe):
    """The stages behind an LSH index; see `Recipe`. `complete` adds those that need the solved parameters.

    Parameters
    ----------
    p : LshParameters
        As the job states them.
    """

    p: LshParameters

    def __init__(
        self, mill: Mill, ingest: Stage, summary: InputSummary, p: LshParameters, memory: int
    ) -> None:
        super().__init__(mill, ingest, summary, memory)
        asked = asked_of(p)
        self.sample = self._call(
            "sample", tasks.SAMPLE_VERSION, {"metric": p.metric, "seed": p.seed}, [ingest],
            lambda: (tasks.sample_task, self.vectors, p.metric, p.seed),
        )  # fmt: skip
        self.solve = self._call(
            "solve", tasks.SOLVE_VERSION, {"metric": p.metric, **asdict(asked)}, [ingest, self.sample],
            lambda: (tasks.solve_task, str(ingest.path), str(self.sample.path), p.metric, asked),
        )  # fmt: skip
        self.solve.pinned = True  # later stages cannot be told without it, also in a build that goes on

    def make_solved(self) -> Solved:
        """Make the stages up to *solve*, and return the solved parameters."""
        self.ingest.pinned = True  # those that read it next are not known yet
        try:
            self.mill.make(self.solve)
            return tasks.read_solved(self.mill.read(self.solve))
        finally:
            self.ingest.pinned = False

    def complete(self, shape: SolvedShape) -> LshRecipe:
        """Add the other stages, of an index of `shape`, with the solved parameters; return itself."""
        self.shape, self.p, self.tables = shape, shape.resolved(), shape.tables
        self.spans = shape.spans(self.memory)
        self.parts: list[emit.Part] = []
        self.chains = [self._chain(group) for group in groups(self.tables)]
        in_memory = certified_in_memory(shape, self.memory)
        self._end(
            self._emit(), certify.VERSION,
            lambda: (
                certify.certify_task, str(self.emit.path), self.manifest(), str(self.ingest.path), self.p.seed,
                in_memory,
            ),
        )  # fmt: skip
        return self

    def _hash(self, group: tuple[int, int]) -> Stage:
        tables = (group[1] - group[0]) * self.tables.n_radii
        batch = self.shape.hash_batch_bytes(self.memory)
        return self._by_rows(
            "hash", tasks.HASH_VERSION, {"tables": group}, [self.ingest, self.solve], "chunk", self.spans,
            lambda: (tasks.hash_task, (self.vectors, self.shape.plan, group), (batch,)),
            steps=tables, unit="entries",
        )  # fmt: skip

    def _chain(self, group: tuple[int, int]) -> Stage:
        hashed = self._hash(group)
        chunks = task_files(hashed.path, len(self.spans) - 1, "chunk")
        cuts = parts(self.tables, group, self.memory)
        start, bits = group[0] * self.tables.n_radii, self.tables.hash_bits
        buffer = sort_buffer_bytes(self.memory)
        stage = self._tasks(
            "chain", tasks.CHAIN_VERSION, {"block_bytes": self.tables.block_bytes}, [hashed], "part",
            [first for first, _ in cuts],
            lambda: (
                tasks.chain_task,
                [
                    (chunks, self.tables, (first - start) << bits, (last - start) << bits, buffer)
                    for first, last in cuts
                ],
            ),
            lambda: [(last - first) * self.tables.n_vectors for first, last in cuts], unit="entries",
        )  # fmt: skip
        files = task_files(stage.path, len(cuts), "part")
        self.parts += [emit.Part(file, *cut) for file, cut in zip(files, cuts, strict=True)]
        return stage

    def _emit(self) -> Stage:
        p, s = self.shape.parameters, self.shape.solved
        defaults = SearchDefaults(p.ratio, s.candidates, p.probes)
        what = {"metric": p.metric, "defaults": asdict(defaults)}
        return self._call(
            "emit", emit.VERSION, what, [*self.chains, self.solve, self.ingest],
            lambda: (
                emit.emit_task, str(self.ingest.path), self.parts, self.shape.plan, p.metric, s, defaults,
            ),
            counts=(self.tables.n_entries, "entries"),
        )  # fmt: skip
