"""What a build of an LSH index knows before its first stage; its size is known when its parameters are solved."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lsh.probes import shared_bucket
from indexmill.builders.lsh.solve import Solved, extent_of, tables_for
from indexmill.formats.lsh.shape import most_probes
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.common import ingest
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.metric import added_component, unit
from indexmill.pipeline.kinds.kind import Blueprint
from indexmill.pipeline.kinds.lsh import memory as lsh_needs
from indexmill.pipeline.kinds.lsh import tasks as lsh
from indexmill.pipeline.kinds.lsh.limits import SMALLER_PROBES, check_probes
from indexmill.pipeline.kinds.lsh.memory import LshSize
from indexmill.pipeline.kinds.lsh.recipe import LshRecipe
from indexmill.pipeline.kinds.lsh.sample import table_blocks
from indexmill.pipeline.kinds.scratch import played, side_columns
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.spec import DEFAULT_SUCCESS, BuildSpec, LshParameters

#: Samples and page headers: scratch space that does not grow with the input.
_SLACK = 64 << 20
#: Rows of the input that a first estimate looks at, and their bytes at most; bytes of an input that is read whole.
_ROWS, _BYTES, _WHOLE_BYTES = 16_384, 32 << 20, 64 << 20
#: Logarithm of the most that radii of a preview grow: any distance of vectors times that is a number.
_MOST_GROWTH = 500.0


class LshBlueprint(Blueprint):
    """The build of an LSH index; see `Blueprint`.

    Attributes
    ----------
    size : LshSize
        About what the index will be, judged by the first rows of `source`.

    Raises
    ------
    ConfigError, InputError
        If parameters and input do not go together.
    BudgetError
        If the build does not fit.
    """

    def __init__(self, spec: BuildSpec, source: VectorSource, p: LshParameters) -> None:
        super().__init__(spec, source)
        ingest.check_metric(source, p.metric)
        self._side = side_columns(source)
        rows, norm = _first_rows(source, p.metric)
        self._rows = np.asarray(rows[:_ROWS], np.float32)
        size = LshSize(
            n=source.n_vectors,
            dim=source.dim + (p.metric == "ip"),
            dtype=ingest.stored_dtype(source.dtype, p.metric),
            id_bytes=self._side.ids,
            parameters=p,
            solved=_preview(rows, norm, source.n_vectors, p),
        )
        self.size = self._filled(size)
        self._check_memory()

    def _filled(self, size: LshSize) -> LshSize:
        """Return `size` with the blocks that its tables take, judged by the first rows."""
        return replace(size, table_blocks=table_blocks(self._rows, size.plan, size.n))

    def _check_memory(self) -> None:
        lsh_needs.groups(self.size.shape)
        check_probes(self.size.parameters.probes, self.size.solved.n_tables)
        lsh_needs.check_memory(self.size, self.spec.memory, self.spec.executor, self.spec.workers)

    def needed_scratch(self) -> tuple[int, dict[str, int]]:
        """See `Blueprint.needed_scratch`."""
        return self._needed_scratch(self.size)

    def _needed_scratch(self, size: LshSize) -> tuple[int, dict[str, int]]:
        memory = self.spec.memory
        sizes = lsh_needs.stage_files(size, memory, self._side.ids_file, self._side.metadata)

        def recipe(mill: Mill, first: Stage, summary: InputSummary) -> LshRecipe:
            return LshRecipe(mill, first, summary, size.parameters, memory).complete(size)

        return played(recipe, sizes, (size.n, size.dim, str(size.dtype)), self.keep)

    def scratch_bound(self, need: int) -> int:
        """See `Blueprint.scratch_bound`."""
        return need + need // 2 + _SLACK

    def hint(self, room: int) -> str:
        """Return what would fit into `room` bytes, which hold less than all tables: fewer, with probes or without."""
        smaller, fewer = self._smaller(), self._fewer(room)
        if smaller is None or self._needed_scratch(smaller)[0] > room:
            return fewer
        n_tables = smaller.solved.n_tables
        return (
            f", or --probes {SMALLER_PROBES}, with which {n_tables} {'tables find' if n_tables > 1 else 'table finds'} "
            f"as many, for more reads a query{fewer}"
        )

    def _smaller(self) -> LshSize | None:
        """Return the index as multi-probe makes it smaller, unless tables or probes were asked for."""
        p, s = self.size.parameters, self.size.solved
        if p.n_tables is not None or p.probes:
            return None
        met = shared_bucket(s.n_functions, p.width, SMALLER_PROBES)
        n_tables = tables_for(met, DEFAULT_SUCCESS if p.success is None else p.success)
        if most_probes(n_tables) < SMALLER_PROBES:
            return None
        parameters = p.model_copy(update={"probes": SMALLER_PROBES})
        return replace(self.size, parameters=parameters, solved=replace(s, met=met)).with_tables(n_tables)

    def _fewer(self, room: int) -> str:

        def need(n_tables: int) -> int:
            return self._needed_scratch(self.size.with_tables(n_tables))[0]

        low, high = 0, self.size.shape.n_tables
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if need(middle) <= room else (low, middle)
        if not low:
            return ", or build fewer vectors: not even one table fits"
        less, now = self.size.with_tables(low).solved.success, self.size.solved.success
        return f", or --n-tables {low}, with which {less:.3f} of the vectors within a radius are found, not {now:.3f}"

    def recipe(self, mill: Mill, first: Stage, summary: InputSummary) -> LshRecipe:
        """Solve for the parameters, check what they need, and return the stages of the build.

        Raises
        ------
        ConfigError, BudgetError
            As at first, now that all vectors were read.
        """
        recipe = LshRecipe(mill, first, summary, self.size.parameters, self.spec.memory)
        self.size = self._filled(replace(self.size, solved=recipe.make_solved()))
        self._check_memory()
        mill.store.scratch = self.scratch_limit(mill.store)
        return recipe.complete(self.size)


def _first_rows(source: VectorSource, metric: str) -> tuple[NDArray[Any], float | None]:
    """Return the first rows as they will be stored, and the norm that none of them exceeds, if known.

    A small input is read to its end, so that its parameters are those that the build will find.
    """
    dtype = ingest.stored_dtype(source.dtype, metric)
    if source.n_vectors * source.dim * dtype.itemsize <= _WHOLE_BYTES:
        vectors = np.concatenate([batch.vectors for batch in source.batches(_ROWS)]).astype(dtype, copy=False)
    else:
        wanted = min(_ROWS, max(512, _BYTES // (4 * source.dim)))
        vectors = np.asarray(next(iter(source.batches(wanted))).vectors[:wanted], dtype)
    vectors = vectors[np.isfinite(vectors).all(axis=1)]  # ingest refuses the others
    norm = None
    if metric == "cosine":
        vectors, norm = unit(vectors[(vectors != 0).any(axis=1)]), 1.0
    if metric == "ip" and len(vectors):
        squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        vectors, norm = np.column_stack([vectors, added_component(squares)]), float(np.sqrt(squares.max()))
    if not len(vectors):
        vectors = np.zeros((1, source.dim + (metric == "ip")), np.float32)
    return vectors, norm


def _preview(vectors: NDArray[Any], norm: float | None, n: int, p: LshParameters) -> Solved:
    """Solve for what the first rows show."""
    extent = extent_of(vectors.min(axis=0).astype(float), vectors.max(axis=0).astype(float), norm)
    nearest = lsh.nearest_distances(vectors, p.metric, p.seed, 1)
    asked = lsh_needs.asked(p)
    if asked.n_radii is not None:  # whether they make sense is for all vectors to say
        grown = math.exp(min(asked.n_radii * math.log(asked.ratio), _MOST_GROWTH))
        extent = max(extent, (asked.first_radius or 1.0) * grown, extent * grown)
    return lsh.solved(asked, n, extent, nearest)


def solved_facts(size: LshSize) -> dict[str, Any]:
    """Return what was solved for, to be shown."""
    s = size.solved
    return {
        **size.resolved().model_dump(exclude={"kind", "metric", "seed", "success"}),
        "p1": round(s.p1, 6),
        "p2": round(s.p2, 6),
        "rho": round(s.rho, 6),
        "success": round(s.success, 6),
        "index_bytes": lsh_needs.output_bytes(size),
        "bitmap_bytes": size.shape.bitmap_bytes,
    }
