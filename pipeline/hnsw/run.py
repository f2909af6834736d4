"""One build: vectors on object storage become a file of faiss beside them.

::

    ingest  sample  cluster  ...  build      level 0, as of a graph index, in one piece, in shards or in regions
    levels                                   the graphs above it
    ids                                      from object storage
    file                                     everything in faiss's format, put on object storage as a whole

A build that was killed resumes where it stopped, and writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports.hnsw import HnswShape
from indexmill.formats.exports.opensearch import KnnFile, write_knn_file
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.execution.executors import make_executor
from indexmill.pipeline.hnsw.levels import VERSION as LEVELS_VERSION
from indexmill.pipeline.hnsw.levels import levels_task, load_levels
from indexmill.pipeline.hnsw.parameters import ID_DTYPE, HnswJob
from indexmill.pipeline.hnsw.size import resolved
from indexmill.pipeline.hnsw.stored import check_objects, check_unchanged, raw_source, read_ids
from indexmill.pipeline.kinds.graph.recipe import GraphRecipe
from indexmill.pipeline.kinds.graph.tasks import BuildArguments, load_graph
from indexmill.pipeline.kinds.registry import warm_up
from indexmill.pipeline.kinds.run import ingest_stage, make_ingest
from indexmill.pipeline.mill.progress import Progress, Silent
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.rehearsal.compiled import compile_kernels
from indexmill.pipeline.urls.storage import Storage

_IDS_VERSION = _FILE_VERSION = 1
_IDS_NAME, _FILE_NAME = "ids.npy", "index.faiss"
_STAGES, _MIRROR = "stages", "mirror"
#: Bytes of vectors, or of neighbours, written at a time.
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class Place:
    """Where a build runs.

    Attributes
    ----------
    work : Path
        Directory of its files, its alone; removed by the caller when the job is done.
    memory : int
        Budget in bytes.
    workers : int
    """

    work: Path
    memory: int
    workers: int


def build_hnsw(job: HnswJob, place: Place, progress: Progress | None = None) -> None:
    """Build the graph of a job's vectors, and put the file on object storage.

    Raises
    ------
    InputError
        If an object is missing, holds something else than the job says, or was changed meanwhile.
    BudgetError
        If the build does not fit memory or disk.
    StorageError
        If storage refuses, or does not answer for a long time.
    """
    hold_little()
    place.work.mkdir(parents=True, exist_ok=True)
    storage = Storage(job.storage, str(place.work / _MIRROR))
    objects = check_objects(job, storage)
    spec, source = job.spec(place.memory, place.workers), raw_source(job, storage)
    size = resolved(job, spec, source)
    compile_kernels(spec, source, progress or Silent())
    store = StageStore(place.work / _STAGES)
    try:
        size.check_space(store.root, store.used_bytes())
        executor = make_executor("local", place.workers, warm_up=warm_up)
        try:
            mill = Mill(store, executor, progress or Silent(), keep=False)
            checked = partial(check_unchanged, job, storage, objects)
            first = ingest_stage(mill, source, job.metric, {"component": job.component}, objects, checked)
            recipe = size.recipe(mill, first, make_ingest(mill, first))
            file = _file_stage(
                job, recipe, _levels_stage(job, recipe), _ids_stage(job, mill, objects, storage)
            )
            storage.put(mill.make(file) / _FILE_NAME, job.out)
        finally:
            executor.close()
    finally:
        store.close()


def _levels_stage(job: HnswJob, recipe: GraphRecipe) -> Stage:
    mill, p = recipe.mill, recipe.p
    arguments = BuildArguments(job.m, p.build_list_size, p.alpha, p.seed, p.builder, saturate=p.saturate)
    key = mill.store.key("levels", LEVELS_VERSION, arguments._asdict(), [recipe.ingest.key])

    def write(directory: Path) -> None:
        task = (levels_task, [recipe.vectors, arguments])
        mill.call(directory, *task, by_step=False, memory=recipe.memory)

    return Stage("levels", key, mill.store.path("levels", key), [recipe.ingest], write)


def _ids_stage(job: HnswJob, mill: Mill, objects: list[str], storage: Storage) -> Stage:
    key = mill.store.key("ids", _IDS_VERSION, {"n": job.n}, objects)

    def write(directory: Path) -> None:
        with open(directory / _IDS_NAME, "xb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": ID_DTYPE.str, "fortran_order": False, "shape": (job.n,)}
            )
            for block in read_ids(job, storage):
                file.write(block.data)
                mill.progress.advance(len(block))
        check_unchanged(job, storage, objects)

    return Stage("ids", key, mill.store.path("ids", key), (), write, steps=job.n, unit="ids")


def _file_stage(job: HnswJob, recipe: GraphRecipe, levels: Stage, ids: Stage) -> Stage:
    mill, graph = recipe.mill, recipe.graph
    inputs = [graph, levels, ids, recipe.ingest]
    what = {"add_list": job.add_list, "search_list": job.search_list, "vectors": job.has_vectors}
    key = mill.store.key("file", _FILE_VERSION, what, [stage.key for stage in inputs])

    def write(directory: Path) -> None:
        upper, entry = load_levels(mill.read(levels))
        lowest = load_graph(mill.read(graph))
        shape = HnswShape(
            job.n, 2 * job.m, job.m, lowest.entry if entry is None else entry, job.add_list, job.search_list
        )
        rows = np.load(recipe.vectors, mmap_mode="r")[:, : job.dim]
        numbers = np.load(mill.read(ids) / _IDS_NAME, mmap_mode="r")
        lists = zip(_blocks(lowest.neighbours), _blocks(lowest.degrees, 4 * 2 * job.m), strict=True)
        with open(directory / _FILE_NAME, "xb") as file:
            write_knn_file(
                KnnFile(job.dim, job.metric, job.component, job.has_vectors), shape, (lists, upper),
                _blocks(rows), _blocks(numbers), file, mill.progress.advance,
            )  # fmt: skip

    steps = (1 + job.has_vectors) * job.n
    path = mill.store.path("file", key)
    return Stage("file", key, path, inputs, write, steps=steps, unit="vectors", pinned=True)


def _blocks(rows: NDArray[Any], row_bytes: int | None = None) -> Iterator[NDArray[Any]]:
    """Yield consecutive rows of a mapped array, as many at a time as rows of `row_bytes` fit a block."""
    step = max(1, _BLOCK_BYTES // (row_bytes or rows[0].nbytes))
    for first in range(0, len(rows), step):
        yield rows[first : first + step]
