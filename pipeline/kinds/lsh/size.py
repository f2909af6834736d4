"""`Size` of an LSH job: a `shape` by the first rows of its input, another once parameters are solved, and its cost."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lsh.probes import shared_bucket
from indexmill.builders.lsh.solve import Solved, extent_of, tables_for
from indexmill.formats.lsh.shape import most_probes
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.bisection import greatest
from indexmill.pipeline.kinds.common import ingest
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.metric import as_stored, usable
from indexmill.pipeline.kinds.common.preview import first_rows
from indexmill.pipeline.kinds.common.shape import stored_vectors
from indexmill.pipeline.kinds.lsh import memory, tasks
from indexmill.pipeline.kinds.lsh.limits import SMALLER_PROBES, check_probes
from indexmill.pipeline.kinds.lsh.parameters import DEFAULT_SUCCESS, LshParameters
from indexmill.pipeline.kinds.lsh.recipe import LshRecipe
from indexmill.pipeline.kinds.lsh.sample import table_blocks
from indexmill.pipeline.kinds.lsh.seconds import Rates, stage_seconds, timed_tasks
from indexmill.pipeline.kinds.lsh.shape import SolvedShape, asked_of, expected_blocks, groups, output_bytes
from indexmill.pipeline.kinds.rehearsal import Rehearsal
from indexmill.pipeline.kinds.scratch import SideColumns, played
from indexmill.pipeline.kinds.size import Job, Size
from indexmill.pipeline.mill.stages import Mill, Stage

#: Samples and page headers: scratch space that does not grow with the input.
_SLACK = 64 << 20
#: Rows of the input that a first estimate looks at, and their bytes at most; bytes of an input that is read whole.
_ROWS, _BYTES, _WHOLE_BYTES = 16_384, 32 << 20, 64 << 20
#: Logarithm of the most that radii of a preview grow: any distance of vectors times that is a number.
_MOST_GROWTH = 500.0


class LshSize(Size[SolvedShape]):
    """The size of an LSH build, an estimate until all vectors were read and the tables are known; see `Size`.

    Attributes
    ----------
    shape : SolvedShape
        Judged by the first rows of `source`.
    """

    start_seconds = 1.3

    def __init__(self, job: Job, source: VectorSource) -> None:
        super().__init__(job, source)
        p = job.parameters
        assert isinstance(p, LshParameters)
        rows, norm = _first_rows(source, p.metric)
        self._rows = np.asarray(rows[:_ROWS], np.float32)
        shape = SolvedShape(
            *stored_vectors(source, p.metric), self.side.ids, p, _preview(rows, norm, source.n_vectors, p)
        )
        self.shape = self._filled(shape)
        self._check_memory()

    @classmethod
    def rehearsals(cls, job: Job, source: VectorSource) -> list[Rehearsal]:
        """Return a build of two tables."""
        p = job.parameters
        small = LshParameters(metric=p.metric, n_tables=2, probes=min(p.probes, 1), hash_bits=3)
        return [Rehearsal(small.model_dump(), source.dtype.name)]

    def stage_bytes(self) -> dict[str, int]:
        """See `Size.stage_bytes`."""
        return memory.stage_bytes(self.shape, self.job.memory, self.job.workers)

    def stage_files(self) -> dict[str, int]:
        """See `Size.stage_files`."""
        return stage_files(self.shape, self.job.memory, self.side)

    def timed(self, place: Path) -> Rates:
        """See `Size.timed`."""
        return timed_tasks(self.source, self.shape, place)

    def seconds_at(self, rates: Rates) -> dict[str, float]:
        """See `Size.seconds_at`."""
        return stage_seconds(rates, self.shape, self.job.memory, self.job.workers, self.stage_files())

    def facts(self) -> dict[str, Any]:
        """Return ``lsh``: the solved parameters."""
        shape, s = self.shape, self.shape.solved
        facts = {
            **shape.resolved().model_dump(exclude={"kind", "metric", "seed", "success"}),
            "p1": round(s.p1, 6),
            "p2": round(s.p2, 6),
            "rho": round(s.rho, 6),
            "success": round(s.success, 6),
            "index_bytes": output_bytes(shape),
            "bitmap_bytes": shape.tables.bitmap_bytes,
        }
        return {"lsh": facts}

    def _filled(self, shape: SolvedShape) -> SolvedShape:
        """Return `shape` with the blocks of its tables, judged by the first rows."""
        return replace(shape, table_blocks=table_blocks(self._rows, shape.plan, shape.n))

    def _check_memory(self) -> None:
        groups(self.shape.tables)
        check_probes(self.shape.parameters.probes, self.shape.solved.n_tables)
        memory.check_memory(self.shape, self.job.memory, self.job.executor, self.job.workers)

    def needed_scratch(self) -> tuple[int, dict[str, int]]:
        """See `Size.needed_scratch`."""
        return self._scratch_of(self.shape)

    def _scratch_of(self, shape: SolvedShape) -> tuple[int, dict[str, int]]:
        """Return `needed_scratch` of an index of `shape`."""
        memory = self.job.memory

        def last(mill: Mill, first: Stage, summary: InputSummary) -> Stage:
            return LshRecipe(mill, first, summary, shape.parameters, memory).complete(shape).certify

        return played(last, stage_files(shape, memory, self.side), shape, self.keep)

    def scratch_bound(self, need: int) -> int:
        """See `Size.scratch_bound`."""
        return need + need // 2 + _SLACK

    def hint(self, space: int) -> str:
        """Return the tables that would fit into `space` bytes, which do not hold all: fewer, with probes or without."""
        smaller, fewer = self._smaller(), self._fewer(space)
        if smaller is None or self._scratch_of(smaller)[0] > space:
            return fewer
        n_tables = smaller.solved.n_tables
        return (
            f", or --probes {SMALLER_PROBES}, with which {n_tables} {'tables find' if n_tables > 1 else 'table finds'} "
            f"as many, for more reads a query{fewer}"
        )

    def _smaller(self) -> SolvedShape | None:
        """Return the smaller index that multi-probe allows, unless the job states tables or probes."""
        p, s = self.shape.parameters, self.shape.solved
        if p.n_tables is not None or p.probes:
            return None
        met = shared_bucket(s.n_functions, p.width, SMALLER_PROBES)
        n_tables = tables_for(met, DEFAULT_SUCCESS if p.success is None else p.success)
        if most_probes(n_tables) < SMALLER_PROBES:
            return None
        parameters = p.model_copy(update={"probes": SMALLER_PROBES})
        return replace(self.shape, parameters=parameters, solved=replace(s, met=met)).with_tables(n_tables)

    def _fewer(self, space: int) -> str:

        def fits(n_tables: int) -> bool:
            return self._scratch_of(self.shape.with_tables(n_tables))[0] <= space

        most = greatest(fits, 0, self.shape.tables.n_tables)
        if not most:
            return ", or build fewer vectors: not even one table fits"
        less, now = self.shape.with_tables(most).solved.success, self.shape.solved.success
        return f", or --n-tables {most}, with which {less:.3f} of the vectors within a radius are found, not {now:.3f}"

    def recipe(self, mill: Mill, first: Stage, summary: InputSummary) -> LshRecipe:
        """Make *sample* and *solve*, and check what the solved parameters need; see `Size.recipe`.

        Raises
        ------
        ConfigError, BudgetError
            As at first, now that all vectors were read.
        """
        recipe = LshRecipe(mill, first, summary, self.shape.parameters, self.job.memory)
        self.shape = self._filled(replace(self.shape, solved=recipe.make_solved()))
        self._check_memory()
        mill.store.scratch = self.scratch_limit(mill.store)
        return recipe.complete(self.shape)


def _first_rows(source: VectorSource, metric: str) -> tuple[NDArray[Any], float | None]:
    """Return the first rows as they will be stored, and the norm that none of them exceeds, if known.

    A small input is read to its end, so that its parameters are those that the build will find.
    """
    dtype = ingest.stored_dtype(source.dtype, metric)
    whole = source.n_vectors * source.dim * dtype.itemsize <= _WHOLE_BYTES
    wanted = source.n_vectors if whole else min(_ROWS, max(512, _BYTES // (4 * source.dim)))
    vectors, norm = usable(first_rows(source, wanted), metric), 1.0 if metric == "cosine" else None
    if not len(vectors):
        return np.zeros((1, source.dim + (metric == "ip")), np.float32), norm
    if metric == "ip":
        norm = float(np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64).max()))
    return as_stored(vectors, metric), norm


def _preview(vectors: NDArray[Any], norm: float | None, n: int, p: LshParameters) -> Solved:
    """Solve for the parameters from the first rows."""
    extent = extent_of(vectors.min(axis=0).astype(float), vectors.max(axis=0).astype(float), norm)
    sampled = tasks.sampled_distances(vectors, p.metric, p.seed, 1)
    asked = asked_of(p)
    if asked.n_radii is not None:  # whether they make sense is for all vectors to say
        grown = math.exp(min(asked.n_radii * math.log(asked.ratio), _MOST_GROWTH))
        extent = max(extent, (asked.first_radius or 1.0) * grown, extent * grown)
    return tasks.solved(asked, n, extent, sampled)


def stage_files(shape: SolvedShape, memory: int, side: SideColumns) -> dict[str, int]:
    """Return the most bytes in the directory of each stage; of hash and chain those of one group.

    A stage holds most when it is finished. Only *emit* holds more before: a file of pointers, which it removes.
    """
    tables = shape.tables
    bounds, n_groups = shape.spans(memory), len(groups(tables))
    rows = shape.n // (len(bounds) - 1)
    key = 8 * tables.buckets_per_table / rows if rows >= 2 * tables.buckets_per_table else 4.0
    return {
        "ingest": shape.n * shape.dim * shape.dtype.itemsize + int(shape.n * (side.ids_file + side.metadata)),
        "sample": 8 * tasks.SAMPLED * (tasks.NEIGHBOURS + tasks.OTHERS) + 256,
        "solve": 1024,
        "hash": int(tables.n_entries * (8 + key)) // n_groups,
        "chain": (expected_blocks(shape) * tables.block_bytes + 4 * tables.n_pointers) // n_groups,
        "emit": output_bytes(shape, side.metadata) + 8 * tables.n_pointers,
        "certify": 0,  # links to what emit wrote
    }
