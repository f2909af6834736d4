"""One build from input to published index: open, resolve, make the last stage, publish."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexmill.formats.index.names import MANIFEST_NAME
from indexmill.formats.sources.source import VectorSource, open_source
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.execution.local import make_executor
from indexmill.pipeline.kinds.common import ingest
from indexmill.pipeline.kinds.common.compute import settled
from indexmill.pipeline.kinds.common.record import run_record
from indexmill.pipeline.kinds.kind import Blueprint
from indexmill.pipeline.kinds.registry import blueprint
from indexmill.pipeline.mill.inputs import InputWatch
from indexmill.pipeline.mill.peak import PeakMemory
from indexmill.pipeline.mill.progress import Progress, Silent
from indexmill.pipeline.mill.publish import check_output, output_lock, publish
from indexmill.pipeline.mill.remote import RemoteStore
from indexmill.pipeline.mill.stages import Mill, Stage, stages_of
from indexmill.pipeline.mill.status import StatusFile
from indexmill.pipeline.mill.storage import open_storage
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.spec import BuildSpec


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
        spec = settled(spec)
        opened = source or open_input(spec)
        build = blueprint(spec, opened)
        store = open_store(spec)
        try:
            store.scratch = build.scratch_limit(store)
            _build(build, store, progress or Silent(), out)
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


def _build(build: Blueprint, store: StageStore, progress: Progress, out: Path) -> None:
    spec, source = build.spec, build.source
    started = datetime.now(UTC).isoformat(timespec="seconds")
    executor = make_executor(spec.executor, spec.workers, spec.ray_address, spec.memory)
    watch = InputWatch(store.root, source)
    try:
        with PeakMemory() as memory, StatusFile(progress, store, memory, spec.memory) as status:
            mill = Mill(store, executor, status, keep=build.keep)
            first = _ingest(spec, source, mill, watch)
            summary = ingest.read_summary(mill.store.fetch(mill.make(first)))
            first.key = summary.fingerprint
            recipe = build.recipe(mill, first, summary)
            stages = stages_of(recipe.certify)
            if not mill.keep:
                store.drop_others({stage.path for stage in stages})
            status.expect(list(dict.fromkeys(stage.name for stage in stages)))
            mill.make(recipe.certify)
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
