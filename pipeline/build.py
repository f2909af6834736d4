"""One build from input to published index: open the input, resolve the size, make the last stage, publish."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import is_url, shown_url
from indexmill.formats.sources.source import VectorSource, open_source
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.execution.executors import make_executor
from indexmill.pipeline.kinds.common import ingest
from indexmill.pipeline.kinds.common.compute import settled
from indexmill.pipeline.kinds.registry import kind_of, warm_up
from indexmill.pipeline.kinds.run import Publish, ingest_stage, local_publish, make_ingest, publish_made
from indexmill.pipeline.kinds.size import Size
from indexmill.pipeline.mill.inputs import InputWatch
from indexmill.pipeline.mill.peak import PeakMemory
from indexmill.pipeline.mill.progress import Progress, Silent
from indexmill.pipeline.mill.publish import check_output, output_lock
from indexmill.pipeline.mill.record import now
from indexmill.pipeline.mill.remote import RemoteStore
from indexmill.pipeline.mill.stages import Mill, stages_of
from indexmill.pipeline.mill.status import StatusFile
from indexmill.pipeline.mill.storage import open_storage
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.mill.url_output import url_output
from indexmill.pipeline.rehearsal.compiled import compile_kernels
from indexmill.pipeline.spec import BuildSpec
from indexmill.reader.native import unit


def run_build(
    spec: BuildSpec, source: VectorSource | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Build and publish an index; a build that was killed resumes where it stopped.

    Parameters
    ----------
    spec : BuildSpec
    source : VectorSource, optional
        Open vectors (from the Python API); by default `spec.input` is opened.
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
    if (note := unit()["note"]) is not None:
        warnings.warn(f"{note}; products are computed by {unit()['products']}, which is slower", stacklevel=2)
    with _output(spec) as publish:
        spec = spec.computing_on(settled(spec.parameters.computes_on, spec.executor))
        source, progress = source or open_input(spec), progress or Silent()
        compile_kernels(spec, source, progress)
        size = kind_of(spec.parameters).resolve(spec, source)
        store = open_store(spec)
        try:
            store.scratch = size.scratch_limit(store)
            manifest = _build(size, spec, store, progress, publish)
        except BaseException:
            store.close()
            raise
        if spec.work:
            store.close()
        else:
            store.remove()
    return manifest


@contextmanager
def _output(spec: BuildSpec) -> Iterator[Publish]:
    """Hold the output of a job for the length of a block; yield what publishes there."""
    if is_url(spec.out):
        if spec.work and shown_url(spec.work).rstrip("/") == shown_url(spec.out).rstrip("/"):
            raise ConfigError("work: is also the output; name another URL")
        with url_output(spec.out, spec.force) as output:
            yield lambda emitted, manifest, run, keep, advance: output.publish(
                emitted, manifest, run, advance
            )
        return
    out = Path(os.path.abspath(spec.out))
    with output_lock(out):
        check_output(out, spec.force)
        yield local_publish(out, spec.force)


def open_input(spec: BuildSpec) -> VectorSource:
    """Open the vectors that a job names."""
    return open_source(
        spec.input, column=spec.column, id_column=spec.id_column, metadata_columns=spec.metadata_columns
    )


def open_store(spec: BuildSpec) -> StageStore:
    """Open the store of a build's stages: a directory, or a URL that all nodes of a cluster see."""
    if spec.work and "://" in spec.work:
        return RemoteStore(open_storage(spec.work))
    return StageStore(work_directory(spec))


def work_directory(spec: BuildSpec) -> Path:
    """Return the directory of a build's stages on this machine: for a URL, its mirror."""
    if spec.work and "://" in spec.work:
        return open_storage(spec.work).mirror
    return Path(spec.work) if spec.work else default_work(spec.out)


def default_work(out: str | os.PathLike[str]) -> Path:
    """Return the directory of the stages of a build of `out`, unless its job names one.

    It lies beside a local `out`; of a URL it has the last part of the name, and lies in the current directory.
    """
    name = shown_url(os.fspath(out)).rstrip("/").rpartition("/")[2] if is_url(out) else out
    out = Path(os.path.abspath(name))
    return out.with_name(out.name + ".work")


def _build(
    size: Size[Any], spec: BuildSpec, store: StageStore, progress: Progress, publish: Publish
) -> dict[str, Any]:
    started, source = now(), size.source
    executor = make_executor(spec.executor, spec.workers, spec.ray_address, spec.memory, warm_up)
    watch = InputWatch(store.root, source)
    try:
        with PeakMemory() as memory, StatusFile(progress, store, memory, spec.memory) as status:
            mill = Mill(store, executor, status, keep=size.keep)
            columns = {"column": spec.column, "id_column": spec.id_column, "metadata": spec.metadata_columns}
            signature = ingest.signature(source)
            first = ingest_stage(mill, source, spec.parameters.metric, columns, signature, watch.check)
            recipe = size.recipe(mill, first, make_ingest(mill, first))
            stages = stages_of(recipe.certify)
            if not mill.keep:
                store.drop_others({stage.path for stage in stages})
            status.expect(list(dict.fromkeys(stage.name for stage in stages)))
            mill.make(recipe.certify)
    finally:
        executor.close()
    manifest = publish_made(recipe, started, memory, spec.executor, publish, progress)
    watch.forget()
    return manifest
