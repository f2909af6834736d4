"""One build from input to published index: open, resolve, make the last stage, publish."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexmill.formats.manifest import MANIFEST_NAME
from indexmill.formats.source import VectorSource, open_source
from indexmill.pipeline import budget, ingest, lsh_build, needs
from indexmill.pipeline.allocator import hold_little
from indexmill.pipeline.executor import make_executor
from indexmill.pipeline.inputs import InputWatch
from indexmill.pipeline.lsh_needs import LshSize
from indexmill.pipeline.lsh_recipe import LshRecipe
from indexmill.pipeline.memory import PeakMemory
from indexmill.pipeline.progress import Progress, Silent
from indexmill.pipeline.publish import check_output, output_lock, publish
from indexmill.pipeline.recipe import GraphRecipe
from indexmill.pipeline.record import run_record
from indexmill.pipeline.room import check_free, check_scratch
from indexmill.pipeline.scratch import needed_scratch, side_columns
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.pipeline.stages import Mill, Stage, stages_of
from indexmill.pipeline.status import StatusFile
from indexmill.pipeline.storage import open_storage
from indexmill.pipeline.store import StageStore
from indexmill.pipeline.store_remote import RemoteStore


def run_build(
    spec: BuildSpec, source: VectorSource | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Build and publish an index; run again after a crash, it goes on where it stopped.

    Parameters
    ----------
    spec : BuildSpec
    source : VectorSource, optional
        Vectors at hand (the Python API); by default `spec.input` is opened.
    progress : Progress, optional

    Returns
    -------
    dict
        The manifest, as published (docs/formats/manifest.md).

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change.
    """
    hold_little()
    out = Path(os.path.abspath(spec.out))
    with output_lock(out):
        check_output(out, spec.force)
        opened = source or open_input(spec)
        size = expect(spec, opened)
        store = open_store(spec)
        try:
            if isinstance(size, LshSize):
                store.scratch = lsh_build.scratch_limit(spec, opened, size, store)
            else:
                store.scratch = scratch_limit(spec, opened, size, store)
            _build(spec, opened, size, store, progress or Silent(), out)
        except BaseException:
            store.close()
            raise
        if spec.work:
            store.close()
        else:
            store.remove()
    manifest: dict[str, Any] = json.loads((out / MANIFEST_NAME).read_text())
    return manifest


def open_input(spec: BuildSpec) -> VectorSource:
    """Open the vectors that a job names."""
    return open_source(
        spec.input, column=spec.column, id_column=spec.id_column, metadata_columns=spec.metadata_columns
    )


def open_store(spec: BuildSpec) -> StageStore:
    """Open where a build keeps its stages: a directory, or a URL that all nodes of a cluster see."""
    if spec.work and "://" in spec.work:
        return RemoteStore(open_storage(spec.work))
    return StageStore(work_directory(spec))


def work_directory(spec: BuildSpec) -> Path:
    """Return where a build keeps its stages on this machine: of a URL, the mirror."""
    if spec.work and "://" in spec.work:
        return open_storage(spec.work).mirror
    return Path(spec.work) if spec.work else default_work(Path(spec.out))


def default_work(out: Path) -> Path:
    """Return where the build of `out` keeps its stages unless its job says otherwise."""
    out = Path(os.path.abspath(out))
    return out.with_name(out.name + ".work")


def expect(spec: BuildSpec, source: VectorSource) -> budget.Shape | LshSize:
    """Return what a build will be like, found to fit its memory; for the errors see `resolve` of its kind."""
    return (
        resolve(spec, source) if isinstance(spec.parameters, Parameters) else lsh_build.resolve(spec, source)
    )


def resolve(spec: BuildSpec, source: VectorSource) -> budget.Shape:
    """Return the shape of a graph build whose parameters say how large its shards are, found to fit its memory.

    Raises
    ------
    ConfigError, InputError
        If the metric does not suit the input.
    BudgetError
        If no build fits.
    """
    p = spec.parameters
    assert isinstance(p, Parameters)
    ingest.check_metric(source, p.metric)
    dtype = ingest.stored_dtype(source.dtype, p.metric)
    dim = source.dim + (p.metric == "ip")
    asked = budget.Shape(source.n_vectors, dim, dtype, side_columns(source).ids, p)
    shape = needs.fit_shards(asked, spec.memory, spec.executor, spec.workers)
    needs.check_memory(shape, spec.memory, spec.executor, spec.workers, asked)
    return shape


def scratch_limit(spec: BuildSpec, source: VectorSource, shape: budget.Shape, store: StageStore) -> int:
    """Return the bytes the work directory may take: what the job allows, else what a build of this kind may need.

    What is there already, of this build or of others, comes on top where the job names the work directory.

    Raises
    ------
    BudgetError
        If the build needs more than the job allows, or than the file system has free.
    """
    need, _ = needed_scratch(shape, side_columns(source), spec.memory, keep=spec.work is not None)
    held = store.used_bytes()
    check_free(store.root, need - held)
    beside = 0 if spec.work is None else held
    if spec.scratch is None:
        return budget.scratch_bound(shape) + beside + (0 if spec.work is None else need)
    check_scratch(need, spec.scratch, store.root)
    return spec.scratch + beside


def _build(
    spec: BuildSpec,
    source: VectorSource,
    size: budget.Shape | LshSize,
    store: StageStore,
    progress: Progress,
    out: Path,
) -> None:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    executor = make_executor(spec.executor, spec.workers, spec.ray_address, spec.memory)
    watch = InputWatch(store.root, source)
    try:
        with PeakMemory() as memory, StatusFile(progress, store, memory, spec.memory) as status:
            mill = Mill(store, executor, status, keep=spec.work is not None)
            first = _ingest(spec, source, mill, watch)
            summary = ingest.read_summary(mill.store.fetch(mill.make(first)))
            first.key = summary.fingerprint
            recipe: GraphRecipe | LshRecipe
            if isinstance(size, LshSize):
                recipe = lsh_build.recipe(mill, first, summary, size, spec, source)
            else:
                recipe = GraphRecipe(mill, first, summary, size, spec.memory)
            stages = stages_of(recipe.last)
            if not mill.keep:
                store.drop_others({stage.path for stage in stages})
            status.expect(list(dict.fromkeys(stage.name for stage in stages)))
            mill.make(recipe.last)
    finally:
        executor.close()
    emitted = mill.read(recipe.emit)
    manifest = replace(recipe.manifest(), certificate=recipe.certificate())
    begun = time.perf_counter()
    progress.start("publish", len(manifest.files), "files")
    record = run_record(spec, started, mill.seconds, memory.bytes, store.peak_bytes)
    publish(emitted, manifest, record, out, spec.force, keep=mill.keep)
    watch.forget()
    progress.advance(len(manifest.files))
    progress.finish(f"{time.perf_counter() - begun:.1f} s")


def _ingest(spec: BuildSpec, source: VectorSource, mill: Mill, watch: InputWatch) -> Stage:
    what = {
        "metric": spec.parameters.metric,
        "column": spec.column,
        "id_column": spec.id_column,
        "metadata": spec.metadata_columns,
    }
    key = mill.store.key("ingest", ingest.VERSION, what, ingest.signature(source))

    def write(directory: Path) -> None:
        ingest.ingest(source, spec.parameters.metric, directory, mill.progress)
        watch.check()

    return Stage(
        "ingest", key, mill.store.path("ingest", key), (), write, steps=source.n_vectors, unit="vectors"
    )
