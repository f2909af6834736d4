"""One build from input to published index: open the input, resolve the size, make the last stage, publish."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import is_mirrored, is_url, local_name, local_path, shown_url
from indexmill.formats.pagefile.atomic import can_link
from indexmill.formats.sources.source import VectorSource, open_source
from indexmill.formats.sources.stream import VectorStream
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.execution.executors import make_executor
from indexmill.pipeline.kinds.common import ingest
from indexmill.pipeline.kinds.common.compute import settled
from indexmill.pipeline.kinds.common.shared import Shared
from indexmill.pipeline.kinds.registry import kind_of, warm_up
from indexmill.pipeline.kinds.run import Publish, ingest_stage, local_publish, make_ingest, publish_made
from indexmill.pipeline.kinds.size import Size
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.mill.disk_space import check_room
from indexmill.pipeline.mill.inputs import InputWatch
from indexmill.pipeline.mill.peak import PeakMemory
from indexmill.pipeline.mill.progress import Progress, Silent
from indexmill.pipeline.mill.publish import check_output, output_lock
from indexmill.pipeline.mill.record import now
from indexmill.pipeline.mill.stages import Mill, stages_of
from indexmill.pipeline.mill.status import StatusFile
from indexmill.pipeline.mill.store import LOCK_NAME, StageStore, held
from indexmill.pipeline.rehearsal.compiled import compile_kernels
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.urls.output import url_output
from indexmill.pipeline.urls.remote import store_at
from indexmill.pipeline.urls.storage import open_storage

Fit: TypeAlias = Callable[[BuildSpec, VectorSource, StageStore, Progress], BuildSpec]


def run_build(
    spec: BuildSpec,
    source: VectorSource | VectorStream | None = None,
    progress: Progress | None = None,
    shared: Shared | None = None,
    fit: Fit | None = None,
) -> dict[str, Any]:
    """Build and publish an index; a build that was killed resumes where it stopped.

    Parameters
    ----------
    spec : BuildSpec
    source : VectorSource or VectorStream, optional
        Open vectors (from the Python API); by default `spec.input` is opened. A stream is copied to the work directory
        first, and read to its end by every run; one that gives the same rows as that of a killed run resumes.
    progress : Progress, optional
    shared : Shared, optional
        What the set has in common of which the input is a part.
    fit : callable, optional
        Returns the job to build in place of this one, which was found good; not asked for a stream.

    Returns
    -------
    dict
        The manifest, as published (docs/formats/manifest.md).

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change.
    """
    if spec.parts is not None:
        raise ConfigError(
            "parts: this job makes one index; leave parts out, or build a set with `indexmill build`"
        )
    hold_little()
    with _output(spec) as publish:
        spec = spec.computing_on(settled(spec.parameters.computes_on, spec.executor))
        progress = progress or Silent()
        if isinstance(source, VectorStream):
            return _build_stream(spec, source, progress, publish)
        size = resolved(spec, source or open_input(spec), progress)
        size.check_given()
        with held(open_store(spec), bool(spec.work)) as store:
            if fit is not None and (fitted := fit(spec, size.source, store, progress)) is not spec:
                spec, size = fitted, kind_of(fitted.parameters).resolve(fitted, size.source)
            store.scratch = size.scratch_limit(store)
            _check_output_room(spec, size, store)
            return _build(size, spec, store, progress, publish, shared)


def _build_stream(
    spec: BuildSpec, stream: VectorStream, progress: Progress, publish: Publish
) -> dict[str, Any]:
    """Build from a copy of a stream, which is deleted at the end, in success or failure."""
    with held(open_store(spec), bool(spec.work)) as store:
        try:
            store.drop_copy()
            with told_when_full(lambda path, reason: _disk_full_message(store, reason)):
                source = stream.copied(store.copy_of_stream)
            size = resolved(spec, source, progress)
            size.check_given()
            store.scratch = size.scratch_limit(store)
            _check_output_room(spec, size, store)
            return _build(size, spec, store, progress, publish)
        finally:
            store.drop_copy()


def _check_output_room(spec: BuildSpec, size: Size[Any], store: StageStore) -> None:
    """Refuse an output without room for the index, unless its files become second names of those of a stage."""
    out = Path(os.path.abspath(spec.out))
    if not is_url(spec.out) and (size.keep or not can_link(store.root / LOCK_NAME, out.parent)):
        check_room(out, size.index_bytes, "index")


def _disk_full_message(store: StageStore, reason: str) -> str:
    """Say that there is no room for the copy of a stream, and what to do."""
    return (
        f"work: {store.copy_of_stream}: {reason} while the stream was copied there; free some space or name another "
        "work directory"
    )


def resolved(spec: BuildSpec, source: VectorSource, progress: Progress) -> Size[Any]:
    """Return the size of a build, with its kernels compiled."""
    compile_kernels(spec, source, progress)
    return kind_of(spec.parameters).resolve(spec, source)


@contextmanager
def _output(spec: BuildSpec) -> Iterator[Publish]:
    """Hold the output of a job for the length of a block; yield what publishes there."""
    refuse_work_in_output(spec)
    if is_url(spec.out):
        with url_output(spec.out, spec.force) as output:
            yield lambda emitted, manifest, run, keep, advance: output.publish(
                emitted, manifest, run, advance
            )
        return
    out = Path(os.path.abspath(spec.out))
    with output_lock(out):
        check_output(out, spec.force)
        yield local_publish(out, spec.force)


def refuse_work_in_output(spec: BuildSpec) -> None:
    """Refuse stages that would lie where the index is to appear, and be in its way."""
    if spec.work is None or is_url(spec.work) != is_url(spec.out):
        return
    if is_url(spec.out):
        work, out, other = shown_url(spec.work).rstrip("/"), shown_url(spec.out).rstrip("/"), "URL"
    else:
        work, out = (os.path.realpath(local_path(path, "work")) for path in (spec.work, spec.out))
        other = "directory"
    if work == out:
        raise ConfigError(f"work: is also the output; name another {other}")
    if work.startswith(f"{out}/"):
        raise ConfigError(f"work: {work} lies inside the output {out}; name a {other} outside it")


def open_input(spec: BuildSpec) -> VectorSource:
    """Open the vectors that a job names."""
    return open_source(
        spec.input, column=spec.column, id_column=spec.id_column, metadata_columns=spec.metadata_columns
    )


def open_store(spec: BuildSpec) -> StageStore:
    """Open the store of a build's stages: a directory, or a URL that all nodes of a cluster see."""
    return store_at(spec.work or default_work(spec.out))


def work_directory(spec: BuildSpec) -> Path:
    """Return the directory of a build's stages on this machine: for a URL, its mirror."""
    if is_mirrored(spec.work):
        return open_storage(spec.work).mirror
    return Path(spec.work) if spec.work else default_work(spec.out)


def default_work(out: str | os.PathLike[str]) -> Path:
    """Return the directory of the stages of a build of `out`, unless its job names one.

    It lies beside a local `out`; of a URL it has the last part of the name, and lies in the current directory.
    """
    beside = Path(os.path.abspath(local_name(out)))
    return beside.with_name(beside.name + ".work")


def _build(
    size: Size[Any], spec: BuildSpec, store: StageStore, progress: Progress, publish: Publish,
    shared: Shared | None = None,
) -> dict[str, Any]:  # fmt: skip
    started, source = now(), size.source
    executor = make_executor(spec.executor, spec.workers, spec.ray_address, spec.memory, warm_up)
    watch = InputWatch(store.root, source)
    try:
        with PeakMemory() as memory, StatusFile(progress, store, memory, spec.memory) as status:
            mill = Mill(store, executor, status, keep=size.keep)
            columns = {"column": spec.column, "id_column": spec.id_column, "metadata": spec.metadata_columns}
            signature = ingest.signature(source)
            first = ingest_stage(
                mill, source, spec.parameters.metric, columns, signature, watch.check, shared=shared
            )
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
