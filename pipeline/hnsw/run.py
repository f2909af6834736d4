"""One build: vectors on object storage become a file of faiss beside them.

::

    ingest  sample  cluster  ...  build      level 0, as of a graph index, in one piece, in shards or in regions
    levels                                   the graphs above it
    ids                                      from object storage
    file                                     everything in faiss's format, put on object storage as a whole

A build that was killed resumes where it stopped, and writes the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.execution.executors import make_executor
from indexmill.pipeline.hnsw.parameters import HnswJob
from indexmill.pipeline.hnsw.recipe import FILE_NAME, file_stage
from indexmill.pipeline.hnsw.size import resolved
from indexmill.pipeline.hnsw.stored import check_objects, check_unchanged, raw_source
from indexmill.pipeline.kinds.registry import warm_up
from indexmill.pipeline.kinds.run import ingest_stage, make_ingest
from indexmill.pipeline.mill.progress import Progress, Silent
from indexmill.pipeline.mill.stages import Mill
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.rehearsal.compiled import compile_kernels
from indexmill.pipeline.urls.storage import Storage, new_token

_STAGES, _MIRROR = "stages", "mirror"
#: Note of a put that was begun: the token by which `Storage.remove_unfinished` finds what it left, if it was killed.
_PUTTING = "putting"


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
    compile_for(job, place.memory, place.workers, progress)
    store = StageStore(place.work / _STAGES)
    try:
        size.check_space(store.root, store.used_bytes())
        executor = make_executor("local", place.workers, warm_up=warm_up)
        try:
            mill = Mill(store, executor, progress or Silent(), keep=False)
            checked = partial(check_unchanged, job, storage, objects)
            first = ingest_stage(mill, source, job.metric, {"component": job.component}, objects, checked)
            recipe = size.recipe(mill, first, make_ingest(mill, first))
            file = file_stage(job, recipe, objects, storage)
            _put(mill.make(file) / FILE_NAME, job, place.work, storage)
        finally:
            executor.close()
    finally:
        store.close()


def compile_for(job: HnswJob, memory: int, workers: int, progress: Progress | None = None) -> None:
    """Compile the kernels of a job that are not in the cache; nothing is read from storage.

    Raises
    ------
    ConfigError, InputError, BudgetError
        As the size of the build.
    """
    for one in dict.fromkeys([job, replace(job, component="int8", metric="l2")]):  # codes of floats are bytes
        compile_kernels(one.spec(memory, workers), raw_source(one, None), progress or Silent())


def discard_unfinished(job: HnswJob, work: Path) -> None:
    """Delete from storage what a build in `work` left that was killed while it put its file there.

    Raises
    ------
    StorageError
        If storage refuses, or does not answer for a long time.
    """
    note = work / _PUTTING
    if note.exists():
        Storage(job.storage, str(work / _MIRROR)).remove_unfinished(job.out, note.read_text())
        note.unlink()


def _put(made: Path, job: HnswJob, work: Path, storage: Storage) -> None:
    """Put the file on storage, and take away what an earlier try left there."""
    if not storage.shows_unfinished:
        storage.put(made, job.out)
        return
    discard_unfinished(job, work)
    note, token = work / _PUTTING, new_token()
    note.write_text(token)
    storage.put(made, job.out, token)
    note.unlink()
