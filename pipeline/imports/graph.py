"""Import of another program's graph: its lists and vectors are kept, and its codes where they can be.

Everything runs through the stages of a build (`pipeline.kinds.graph.recipe`), by default in identity order: a
vector's slot is its number in the other index, so nodes lie on pages as they did there. Work is beside the output
and gone when the import ends, well or not; a killed one starts over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.graph.codes import MAX_BYTES
from indexmill.formats.imports.index import ImportedIndex
from indexmill.formats.index.manifest import file_sha256
from indexmill.formats.sources.joined import JoinedSource
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.execution.local import LocalExecutor
from indexmill.pipeline.imports.memory import import_memory
from indexmill.pipeline.imports.recipe import ImportRecipe, Origin
from indexmill.pipeline.kinds.common import ingest
from indexmill.pipeline.kinds.common.parameters import DEFAULT_PQ_BYTES, Metric
from indexmill.pipeline.kinds.common.shape import stored_vectors
from indexmill.pipeline.kinds.graph.parameters import Order, Parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.size import needed_scratch
from indexmill.pipeline.kinds.run import ingest_stage, local_publish, make_ingest, publish_made
from indexmill.pipeline.kinds.scratch import side_columns
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.peak import PeakMemory
from indexmill.pipeline.mill.progress import Progress, Silent
from indexmill.pipeline.mill.publish import check_output, output_lock
from indexmill.pipeline.mill.record import now
from indexmill.pipeline.mill.stages import Mill
from indexmill.pipeline.mill.store import StageStore

_LEAST_DEGREE = 2
#: Vectors looked at, and how far from 1 their lengths may be, where a graph is said to be by cosine.
_LENGTHS, _LENGTH_SLACK = 100, 0.03
#: How far the length of a vector may be from 1 that was divided by it and rounded to float32: it is not divided again.
_ROUNDED_LENGTH = 2.0**-23


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import.

    Attributes
    ----------
    out : path
        The index directory to write.
    metric : {"l2", "ip", "cosine"}, optional
        By default what the files say, else l2.
    ids : pyarrow.Array, optional
        User ids, one a vector, in place of those of the files.
    id_type : str
    pq_bytes : int, optional
        Bytes of a code that is trained; by default codes of the files are kept, and others have 32.
    order : str
        Page order, as in a build; ``identity`` keeps that of the other index.
    repair : bool
        Whether vertices that the entry vertex does not reach get an edge.
    memory : int, optional
        Bytes beside the page cache; by default the least that works.
    workers : int
        Threads; they do not change the bytes.
    force : bool
        Whether an index at `out` is replaced.
    """

    out: str | os.PathLike[str]
    metric: Metric | None = None
    ids: pa.Array | None = None
    id_type: str = "none"
    pq_bytes: int | None = None
    order: Order = "identity"
    repair: bool = True
    memory: int | None = None
    workers: int = 2
    force: bool = False

    def __post_init__(self) -> None:
        for name, value, most in (("workers", self.workers, 1024), ("pq_bytes", self.pq_bytes, MAX_BYTES)):
            if value is not None and not 1 <= value <= most:
                raise ConfigError(f"{name}: expected 1 to {most}, got {value}")
        if self.memory is not None and self.memory < 1:
            raise ConfigError(f"memory: expected a positive number of bytes, got {self.memory}")
        if self.metric not in (None, "l2", "ip", "cosine"):
            raise ConfigError(f"metric: expected l2, ip or cosine, got {self.metric!r}")
        if self.order not in get_args(Order):
            raise ConfigError(f"order: expected one of {', '.join(get_args(Order))}, got {self.order!r}")


def run_import(
    index: ImportedIndex, options: ImportOptions, progress: Progress | None = None
) -> dict[str, Any]:
    """Write and publish an index made of `index`.

    Returns
    -------
    dict
        The manifest, as published (docs/formats/manifest.md).

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change; nothing is left behind.
    """
    hold_little()
    out = Path(os.path.abspath(options.out))
    with output_lock(out):
        check_output(out, options.force)
        store = StageStore(out.with_name(f".{out.name}.indexmill-import"))
        try:
            store.drop_others(())
            return _import(index, options, store, progress or Silent(), out)
        finally:
            store.remove()


def _import(
    index: ImportedIndex, options: ImportOptions, store: StageStore, progress: Progress, out: Path
) -> dict[str, Any]:
    started = now()
    times = times_of(index.files)
    with PeakMemory() as memory:
        metric = choose_metric(index, options.metric)
        source = _source(index, options)
        ingest.check_metric(source, metric)
        degree = longest_list(index, progress)
        p, side = parameters(index, metric, options, degree), side_columns(source)
        shape = GraphShape(*stored_vectors(source, metric), side.ids, p)
        budget = import_memory(shape, index, options.workers, options.memory)
        check_free(store.root, needed_scratch(shape, side, budget, keep=False)[0])
        files = fingerprints(index.files)
        executor = LocalExecutor(options.workers)
        try:
            mill = Mill(store, executor, progress, keep=False)
            digests = [file["sha256"] for file in files]
            first = ingest_stage(mill, source, metric, {}, digests, unit_slack=_ROUNDED_LENGTH)
            origin = Origin(index, files, options.repair)
            recipe = ImportRecipe(mill, first, make_ingest(mill, first), shape, budget, origin)
            recipe.make_graph()
            mill.make(recipe.certify)
        finally:
            executor.close()
    check_times(index.files, times)
    return publish_made(recipe, started, memory, "local", local_publish(out, options.force), progress)


def choose_metric(index: ImportedIndex, asked: Metric | None) -> Metric:
    """Return the metric of the index: what its files say, else what is asked for, else l2.

    A file that says l2 or ip may hold vectors of unit length, which makes it cosine: that has to be asked for.

    Raises
    ------
    ConfigError
        If the graph was built for another metric, or only the user can tell which.
    """
    known = index.metric
    if asked is None and known is None and index.metric_hint is not None:
        raise ConfigError(
            f"metric: {index.metric_hint}, expected 0, which is l2; what other numbers mean differs between programs: "
            "name the metric the graph was built for with --metric l2, ip or cosine"
        )
    if asked is None:
        return "ip" if known == "ip" else "l2"
    fits = known is None or asked == known or (asked == "cosine" and index.kind.startswith("faiss"))
    if not fits:
        raise ConfigError(f"metric: {asked}, but {index.files[0]} was built for {known}; leave it out")
    if index.kind == "diskann" and known is None and asked == "ip":
        raise ConfigError(
            f"metric: ip, but there is no {index.files[0].name}_max_base_norm.bin, which an index for inner products "
            "has; leave it out"
        )
    if index.kind == "diskann" and asked == "cosine" and index.vectors.dtype.kind != "f":
        raise ConfigError(
            f"metric: cosine, but {index.files[0]} holds {index.vectors.dtype} vectors, whose graph DiskANN builds by "
            "l2 on disk; leave it out, or build an index from the vectors"
        )
    if asked == "cosine" and index.vectors.dtype.kind == "f":
        _check_lengths(index)
    return asked


def _check_lengths(index: ImportedIndex) -> None:
    """Refuse a graph of vectors of other lengths than 1 for cosine: another program would have made them so."""
    vectors = index.vectors
    rows = np.unique(np.linspace(0, vectors.n_rows - 1, _LENGTHS).astype(np.int64)).tolist()
    for row in rows:
        length = float(np.linalg.norm(vectors.read(row, row + 1).astype(np.float64)))
        if abs(length - 1) > _LENGTH_SLACK:
            raise ConfigError(
                f"metric: cosine, but vector {row:,} of {vectors.name} has length {length:.6g}, so that its graph was "
                "built by another metric; leave it out, or build an index from the vectors"
            )


def _source(index: ImportedIndex, options: ImportOptions) -> VectorSource:
    """Return the vectors of `index` with the ids that are asked for.

    Raises
    ------
    InputError
        If there are more or fewer ids than vectors.
    """
    vectors = index.vectors
    if options.ids is not None:
        if len(options.ids) != vectors.n_rows:
            raise InputError(
                f"{vectors.name}: {len(options.ids):,} ids for {vectors.n_rows:,} vectors; expected one for each"
            )
        vectors = replace(vectors, ids=options.ids, id_type=options.id_type)
    return JoinedSource([vectors])


def longest_list(index: ImportedIndex, progress: Progress) -> int:
    """Read all lists once, which checks them, and return R: the length of the longest, at least 2."""
    begun = time.perf_counter()
    progress.start("check", index.vectors.n_rows, "vectors")
    degree = _LEAST_DEGREE
    for block in index.lists.blocks():
        degree = max(degree, int(block.degrees.max()))
        progress.advance(len(block.degrees))
    progress.finish(f"{time.perf_counter() - begun:.1f} s")
    return degree


def parameters(index: ImportedIndex, metric: Metric, options: ImportOptions, degree: int) -> Parameters:
    """Return what the manifest says: of the graph what it is; by default codes have 32 bytes and no rotation."""
    pq_bytes = options.pq_bytes
    if index.codes is not None:
        pq_bytes = index.codes.codes.shape[1]
    return Parameters(
        builder="vamana",
        max_degree=degree,
        pq_bytes=pq_bytes or DEFAULT_PQ_BYTES,
        order=options.order,
        metric=metric,
    )


def fingerprints(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Return name, size and SHA-256 of every file, in order."""
    return [{"name": path.name, "bytes": path.stat().st_size, "sha256": file_sha256(path)} for path in files]


def times_of(files: Sequence[Path]) -> list[int]:
    """Return when each file was last written."""
    return [os.stat(path).st_mtime_ns for path in files]


def check_times(files: Sequence[Path], before: list[int]) -> None:
    """Refuse files that were changed while they were read; `before` is from `times_of`.

    Raises
    ------
    InputError
    """
    for path, written, rewritten in zip(files, before, times_of(files), strict=True):
        if written != rewritten:
            raise InputError(f"{path}: has changed while it was imported; run again when it is finished")
