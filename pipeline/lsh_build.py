"""What a build of an LSH index does differently: its size is known when its parameters are solved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.builders.lsh_solve import Solved, extent_of
from indexmill.formats.source import VectorSource
from indexmill.pipeline import ingest, lsh, lsh_needs
from indexmill.pipeline.executor import LocalExecutor
from indexmill.pipeline.ingest import InputSummary
from indexmill.pipeline.lsh_needs import LshSize
from indexmill.pipeline.lsh_recipe import LshRecipe, LshSolving
from indexmill.pipeline.metric import added_component, unit
from indexmill.pipeline.progress import Silent
from indexmill.pipeline.room import check_free, check_scratch, free_bytes
from indexmill.pipeline.scratch import PaperMill, PaperStore, SideColumns, nothing, side_columns
from indexmill.pipeline.spec import BuildSpec, LshParameters
from indexmill.pipeline.stages import Mill, Stage
from indexmill.pipeline.store import StageStore

#: Samples and page headers: scratch space that does not grow with the input.
_SLACK = 64 << 20
#: Rows of the input that a first estimate looks at, and their bytes at most.
_ROWS, _BYTES = 16_384, 32 << 20


def parameters_of(spec: BuildSpec) -> LshParameters:
    """Return the parameters of a build of this kind."""
    p = spec.parameters
    assert isinstance(p, LshParameters)
    return p


def resolve(spec: BuildSpec, source: VectorSource) -> LshSize:
    """Return about what the index will be, judged by the first rows of `source`, and found to fit its memory.

    Raises
    ------
    ConfigError, InputError
        If parameters and input do not go together.
    BudgetError
        If the build does not fit.
    """
    p = parameters_of(spec)
    ingest.check_metric(source, p.metric)
    size = LshSize(
        n=source.n_vectors,
        dim=source.dim + (p.metric == "ip"),
        dtype=ingest.stored_dtype(source.dtype, p.metric),
        id_bytes=side_columns(source).ids,
        parameters=p,
        solved=_preview(source, p),
    )
    check(size, spec)
    return size


def check(size: LshSize, spec: BuildSpec) -> None:
    """Refuse what cannot be, or does not fit the memory.

    Raises
    ------
    ConfigError, BudgetError
    """
    lsh_needs.groups(size.shape)
    lsh_needs.check_memory(size, spec.memory, spec.executor, spec.workers)


def _preview(source: VectorSource, p: LshParameters) -> Solved:
    """Solve for what the first rows show: too few radii rather than too many."""
    wanted = min(_ROWS, max(512, _BYTES // (4 * source.dim)))
    vectors = np.asarray(next(iter(source.batches(wanted))).vectors[:wanted], np.float32)
    vectors = vectors[np.isfinite(vectors).all(axis=1)]  # ingest refuses the others
    norm = None
    if p.metric == "cosine":
        vectors, norm = unit(vectors[(vectors != 0).any(axis=1)]), 1.0
    if p.metric == "ip" and len(vectors):
        squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        vectors, norm = np.column_stack([vectors, added_component(squares)]), float(np.sqrt(squares.max()))
    if not len(vectors):
        vectors = np.zeros((1, source.dim), np.float32)
    extent = extent_of(vectors.min(axis=0).astype(float), vectors.max(axis=0).astype(float), norm)
    nearest = lsh.nearest_distances(vectors, p.metric, p.seed, 1)
    asked = lsh_needs.asked(p)
    if asked.n_radii is not None:  # whether they make sense is for all vectors to say
        reach = (asked.first_radius or 1.0) * asked.ratio**asked.n_radii
        extent = max(extent, reach, extent * asked.ratio**asked.n_radii)
    return lsh.solved(asked, source.n_vectors, extent, nearest)


def needed_scratch(size: LshSize, side: SideColumns, memory: int, keep: bool) -> tuple[int, dict[str, int]]:
    """Return the most bytes that the work directory will hold, and what each stage leaves there."""
    files = lsh_needs.stage_files(size, memory, side.ids_file, side.metadata)
    store = PaperStore(files)
    mill = PaperMill(store, LocalExecutor(1), Silent(), keep)
    key = store.key("ingest", 0, {}, [])
    first = Stage("ingest", key, store.path("ingest", key), (), nothing)
    summary = InputSummary(size.n, size.dim, str(size.dtype), key, 0.0, [], [], [], "none")
    mill.make(first)
    recipe = LshRecipe(LshSolving(mill, first, size.parameters, memory), first, summary, size)
    mill.make(recipe.last)
    mill.executor.close()
    return store.peak_bytes, files


def scratch_limit(spec: BuildSpec, source: VectorSource, size: LshSize, store: StageStore) -> int:
    """Return the bytes the work directory may take: what the job allows, else what the index may need.

    What is there already, of this build or of others, comes on top where the job names the work directory.

    Raises
    ------
    BudgetError
        As `check_room`.
    """
    keep, held = spec.work is not None, store.used_bytes()
    need, _ = check_room(spec, source, size, store.root, held)
    beside = held if keep else 0
    if spec.scratch is None:
        return need + need // 2 + beside + (need if keep else 0) + _SLACK
    return spec.scratch + beside


def check_room(
    spec: BuildSpec, source: VectorSource, size: LshSize, place: Path, held: int
) -> tuple[int, dict[str, int]]:
    """Return `needed_scratch`, having found that there is room for it at `place`, which holds `held` bytes already.

    Raises
    ------
    BudgetError
        If the build needs more than the job allows, or than the file system has free, naming the tables that fit.
    """
    side, keep = side_columns(source), spec.work is not None
    need, files = needed_scratch(size, side, spec.memory, keep)
    hint = _Hint(size, side, spec.memory, keep)
    if spec.scratch is not None:
        check_scratch(need, spec.scratch, place, hint.below(spec.scratch))
    check_free(place, max(0, need - held), hint=hint.below(free_bytes(place) + held))
    return need, files


class _Hint:
    """Says how many tables would fit."""

    def __init__(self, size: LshSize, side: SideColumns, memory: int, keep: bool) -> None:
        self._size, self._side, self._memory, self._keep = size, side, memory, keep

    def _need(self, n_tables: int) -> int:
        return needed_scratch(self._size.with_tables(n_tables), self._side, self._memory, self._keep)[0]

    def below(self, room: int) -> str:
        """Return the end of a sentence about `room` bytes; empty where the index fits."""
        low, high = 0, self._size.shape.n_tables
        if self._need(high) <= room:
            return ""
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._need(middle) <= room else (low, middle)
        if not low:
            return ", or build fewer vectors: not even one table fits"
        less, now = self._size.with_tables(low).solved.success, self._size.solved.success
        return f", or --n-tables {low}, with which {less:.3f} of the vectors within a radius are found, not {now:.3f}"


def recipe(
    mill: Mill, first: Stage, summary: InputSummary, size: LshSize, spec: BuildSpec, source: VectorSource
) -> LshRecipe:
    """Solve for the parameters, check what they need, and return the stages of the build.

    Raises
    ------
    ConfigError, BudgetError
        As `resolve` and `scratch_limit`, now that all vectors were read.
    """
    solving = LshSolving(mill, first, parameters_of(spec), spec.memory)
    size = replace(size, solved=solving.make())
    check(size, spec)
    mill.store.scratch = scratch_limit(spec, source, size, mill.store)
    return LshRecipe(solving, first, summary, size)


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
