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
from indexmill.pipeline import budget, ingest
from indexmill.pipeline.executor import make_executor
from indexmill.pipeline.inputs import InputWatch
from indexmill.pipeline.memory import PeakMemory
from indexmill.pipeline.progress import Progress, Silent
from indexmill.pipeline.publish import check_output, output_lock, publish
from indexmill.pipeline.recipe import GraphRecipe
from indexmill.pipeline.record import run_record
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.stages import Mill, Stage
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
    out = Path(os.path.abspath(spec.out))
    with output_lock(out):
        check_output(out, spec.force)
        opened = source or open_input(spec)
        shape = resolve(spec, opened)
        store = open_store(spec, scratch_limit(spec, shape))
        try:
            _build(spec, opened, shape, store, progress or Silent(), out)
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


def open_store(spec: BuildSpec, scratch: int | None) -> StageStore:
    """Open where a build keeps its stages: a directory, or a URL that all nodes of a cluster see."""
    if spec.work and "://" in spec.work:
        return RemoteStore(open_storage(spec.work), scratch)
    return StageStore(work_directory(spec), scratch)


def work_directory(spec: BuildSpec) -> Path:
    """Return where a build keeps its stages."""
    out = Path(os.path.abspath(spec.out))
    return Path(spec.work) if spec.work else out.with_name(out.name + ".work")


def resolve(spec: BuildSpec, source: VectorSource) -> budget.Shape:
    """Return the shape of a build whose parameters say how large its shards are, found to fit its memory.

    Raises
    ------
    ConfigError, InputError
        If the metric does not suit the input.
    BudgetError
        If no build fits.
    """
    p = spec.parameters
    ingest.check_metric(source, p.metric)
    dtype = ingest.stored_dtype(source.dtype, p.metric)
    dim = source.dim + (p.metric == "ip")
    shape = budget.Shape(source.n_vectors, dim, dtype, spec.id_column is not None, p)
    limit = p.shard_vectors or budget.shard_size(shape, spec.memory)
    sharded = limit is not None and source.n_vectors > limit
    shape = replace(shape, parameters=p.model_copy(update={"shard_vectors": limit if sharded else None}))
    budget.check_memory(shape, spec.memory, spec.executor, spec.workers)
    return shape


def scratch_limit(spec: BuildSpec, shape: budget.Shape) -> int:
    """Return the bytes the work directory may take: what the job allows, else what a build of this kind needs.

    Raises
    ------
    BudgetError
        If the job allows less than the build needs.
    """
    return spec.scratch or budget.scratch_bound(shape)


def _build(
    spec: BuildSpec,
    source: VectorSource,
    shape: budget.Shape,
    store: StageStore,
    progress: Progress,
    out: Path,
) -> None:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    executor = make_executor(spec.executor, spec.workers, spec.ray_address, spec.memory)
    watch = InputWatch(store.root, source, spec.force)
    mill = Mill(store, executor, progress, keep=spec.work is not None)
    try:
        with PeakMemory() as memory:
            first = _ingest(spec, source, mill, watch)
            summary = ingest.read_summary(mill.store.fetch(mill.make(first)))
            first.key = summary.fingerprint
            recipe = GraphRecipe(mill, first, summary, shape, spec.memory)
            certified = mill.make(recipe.certify)
    finally:
        executor.close()
    emitted = mill.read(recipe.emit)
    certificate = json.loads((mill.store.fetch(certified) / "certificate.json").read_text())
    manifest = replace(recipe.manifest(), certificate=certificate)
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
