"""One build of a set: divide the input, train codes, build each part as an ordinary index, publish all at once."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ConfigError
from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.index.names import MANIFEST_NAME
from indexmill.formats.index.setmanifest import (
    Part,
    SetManifest,
    check_n_parts,
    check_parts,
    part_name,
    write_set_manifest,
)
from indexmill.formats.location import is_mirrored, is_url
from indexmill.formats.pagefile.atomic import fsync_dir, link_or_copy
from indexmill.formats.sources.source import VectorSource
from indexmill.formats.sources.stream import VectorStream
from indexmill.pipeline.build import Fit, open_input, open_store, refuse_work_in_output, run_build
from indexmill.pipeline.kinds.common.ingest import check_metric, signature, stored_dtype
from indexmill.pipeline.kinds.common.shared import Shared
from indexmill.pipeline.kinds.graph.shaped.asked import check_sample, opened_sample
from indexmill.pipeline.mill.inputs import InputWatch, ObjectWatch
from indexmill.pipeline.mill.progress import Progress, Silent
from indexmill.pipeline.mill.publish import begin, check_output, output_lock, swap_in
from indexmill.pipeline.mill.store import StageStore, held, software_versions
from indexmill.pipeline.sets.codes import codes_directory, load_codes, make_codes
from indexmill.pipeline.sets.divide import (
    ID_COLUMN,
    VECTOR_COLUMN,
    divide,
    load_margin,
    load_range,
    load_router,
    part_file,
)
from indexmill.pipeline.sets.divide import VERSION as DIVIDE_VERSION
from indexmill.pipeline.sets.margin import drawn_queries
from indexmill.pipeline.spec import BuildSpec

#: Of the stage that holds finished parts until all are there.
PARTS_VERSION = 3


def run_build_or_set(
    spec: BuildSpec, source: VectorSource | VectorStream | None = None, progress: Progress | None = None,
    fit: Fit | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Build one index, or a set of them where the job asks for parts; return the manifest as published.

    Parameters
    ----------
    fit : callable, optional
        As of `run_build`; a set is built by its job as it is.

    Raises
    ------
    IndexmillError
        As `run_build` and `run_set_build`.
    """
    if spec.parts is not None:
        return run_set_build(spec, source, progress)
    return run_build(spec, source, progress, fit=fit)


def run_set_build(
    spec: BuildSpec, source: VectorSource | VectorStream | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Build and publish a set; a build that was killed resumes where it stopped.

    Parts are built one after the other, each within the memory and scratch of the job, with codes that all have in
    common. Their bytes, like those of any index, do not depend on workers.

    Returns
    -------
    dict
        The manifest, as published (docs/formats/set.md).

    Raises
    ------
    ConfigError
        If the job has what a set cannot be built with: a URL as output or work directory, a stream, given centroids,
        or more parts than a manifest may have centroids for.
    InputError
        If the vectors cannot be divided so.
    IndexmillError
        As `run_build`.
    """
    refuse_job(spec, source)
    out, progress = Path(os.path.abspath(spec.out)), progress or Silent()
    with output_lock(out):
        check_output(out, spec.force)
        assert not isinstance(source, VectorStream)
        vectors = source or open_input(spec)
        check_metric(vectors, spec.parameters.metric)
        with held(open_store(spec), bool(spec.work)) as store:
            return _build(spec, vectors, store, out, progress)


def refuse_job(spec: BuildSpec, source: VectorSource | VectorStream | None) -> None:
    """Refuse what a set cannot be built with, by name.

    Raises
    ------
    ConfigError
    """
    if is_url(spec.out) or is_mirrored(spec.work):
        raise ConfigError(
            "parts: a set is built in a local directory; name one with --out and --work, and copy it"
        )
    refuse_work_in_output(spec)
    if isinstance(source, VectorStream):
        raise ConfigError("parts: a stream cannot be divided; write it to a Parquet file and build from that")
    if spec.centroids is not None:
        raise ConfigError(
            "centroids: belong to one index, and each part of a set has its own; leave them out"
        )


def _build(
    spec: BuildSpec, source: VectorSource, store: StageStore, out: Path, progress: Progress
) -> dict[str, Any]:
    p, parts = spec.parameters, spec.parts
    assert parts is not None
    check_n_parts(parts, source.dim)
    what = {"metric": p.metric, "parts": parts, "seed": p.seed}
    columns = {"column": spec.column, "ids": spec.id_column, "metadata": spec.metadata_columns}
    sample = (
        None if spec.query_sample is None else opened_sample(spec.query_sample, spec.query_column, source)
    )
    told = []
    if sample is not None:
        sample_watch = ObjectWatch(sample)
        check_sample(sample, p.metric, stored_dtype(source.dtype, p.metric))
        told = [*signature(sample), str(spec.query_column)]
    watch = InputWatch(store.root, source)
    key = store.key("divide", DIVIDE_VERSION, {**what, **columns}, [*signature(source), *told])
    divided = store.path("divide", key)
    if not store.is_done(divided):
        progress.start("divide", source.n_vectors, "vectors")
        store.begin(divided, resume=False)
        asked = (
            None
            if sample is None or p.metric == "ip"
            else drawn_queries(sample, source.dtype, p.metric, p.seed)
        )
        if sample is not None:
            sample_watch.check()
        divide(source, p.metric, parts, p.seed, spec.memory, divided, progress, spec.workers, asked)
        watch.check()
        store.finish(divided)
        progress.finish("done")
    stated = sorted(p.model_fields_set)  # the others may be chosen
    decisive = {**p.model_dump(mode="json"), "memory": spec.memory, "stated": stated}
    codes = codes_directory(store, decisive, [key])
    shaped = {} if spec.label_column is None else {"label_column": spec.label_column}
    built = store.path("parts", store.key("parts", PARTS_VERSION, decisive | shaped, [key, codes.name]))
    centroids, weights, counts = load_router(divided)
    names = [part_name(number) for number in range(parts)]
    jobs = [
        _part_spec(spec, source, part_file(divided, number), built / name)
        for number, name in enumerate(names)
    ]
    extent = load_range(divided)
    shared = Shared(extent) if p.has_codes else None
    if p.has_codebook:
        make_codes(codes, jobs[int(counts.argmax())], parts, source, extent, store, progress, watch.check)
        chosen, shared = load_codes(codes, extent)
        p = p.model_copy(update=chosen)
    if not spec.work:
        store.drop_others({divided, codes, built})
    built.mkdir(exist_ok=True)
    for job in jobs:
        if not (Path(job.out) / MANIFEST_NAME).is_file():
            run_build(job.model_copy(update={"parameters": p}), None, progress, shared)
    builds = [parse_manifest(built / name).build_id for name in names]
    made = tuple(Part(*facts) for facts in zip(names, builds, map(int, counts), strict=True))
    facts = {
        "n_vectors": source.n_vectors,
        "dim": source.dim,
        "dtype": str(source.dtype),
        "id_type": source.id_type,
    }
    digest = None if shared is None else shared.digest
    parameters = p.model_dump(mode="json")
    margin = load_margin(divided)
    manifest = SetManifest(made, centroids, weights, parameters, facts, software_versions(), digest, margin)
    _publish(built, manifest, out, spec.force)
    watch.forget()
    published: dict[str, Any] = json.loads((out / MANIFEST_NAME).read_text(encoding="utf-8"))
    return published


def _part_spec(spec: BuildSpec, source: VectorSource, file: Path, out: Path) -> BuildSpec:
    """Return the job of one part; its stages lie beside it."""
    schema = source.metadata_schema
    changed = {
        "input": [str(file)], "column": VECTOR_COLUMN, "id_column": ID_COLUMN,
        "metadata_columns": [] if schema is None else list(schema.names),
        "out": str(out), "work": None, "parts": None, "force": False,
    }  # fmt: skip
    return spec.model_copy(update=changed)


def _publish(built: Path, manifest: SetManifest, out: Path, force: bool) -> None:
    """Lay all parts beside `out`, write the set's manifest last, and rename the whole into place."""
    check_output(out, force)
    fresh = begin(out)
    for part in manifest.parts:
        (fresh / part.name).mkdir()
        for file in sorted((built / part.name).iterdir()):
            link_or_copy(file, fresh / part.name / file.name)
            with open(fresh / part.name / file.name, "rb") as written:
                os.fsync(written.fileno())
        fsync_dir(fresh / part.name)
    check_parts(fresh, manifest)
    write_set_manifest(fresh, manifest)
    swap_in(fresh, out)
    shutil.rmtree(built)
