"""A join: the k nearest vectors of every query in an IVF index that does not fit memory, batch after batch.

Batch Similarity Search (section 4.2, Algorithm 1): every batch is read once, front to back, and searched for all
queries before the next. What was found in a batch is kept until the join is finished, so that a join that was killed,
or that found a batch damaged, resumes with the batches that are left. On several machines (section 4.3, Algorithm 2)
each searches some of the batches, and what they found is merged in a tree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.formats.errors import ConfigError
from indexmill.formats.ivf.index import IvfFiles
from indexmill.pipeline.execution.executors import make_executor
from indexmill.pipeline.execution.local import Executor
from indexmill.pipeline.generations.scratch import JOIN_KIND, scratch_directory
from indexmill.pipeline.join.gather import gather, read_blocks
from indexmill.pipeline.join.options import JoinOptions, JoinReport
from indexmill.pipeline.join.partials import Partials
from indexmill.pipeline.join.queries import Queries
from indexmill.pipeline.join.result import group_queries, write_result
from indexmill.pipeline.join.steps import JoinRun
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.mill.progress import Progress, Silent
from indexmill.pipeline.mill.publish import output_lock


def run_join(
    queries: NDArray[Any],
    index: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: JoinOptions,
    query_ids: pa.Array | None = None,
    progress: Progress | None = None,
) -> JoinReport:
    """Write the neighbours of all queries to a Parquet file; a join that was killed resumes where it stopped.

    Parameters
    ----------
    queries : array, shape (n_queries, dim)
        May be a mapped file: a block of them is converted at a time.
    query_ids : pyarrow Array, optional
        What the result calls the queries; by default their rows.

    Returns
    -------
    JoinReport

    Raises
    ------
    CorruptFile
        If batches cannot be read; all others were searched, and what was found in them is kept.
    IndexmillError
        Of the kind that tells what to change.
    """
    began = time.perf_counter()
    target = Path(os.path.abspath(out))
    with output_lock(target), _executor(options) as executor:
        files = IvfFiles(os.path.abspath(index))
        check_nprobe(files, options.nprobe)
        asked = Queries(files.centroids, queries)
        partials = Partials(scratch_directory(target, options.work, JOIN_KIND), len(asked), options.k)
        run = JoinRun(files, asked, options, partials, executor, progress or Silent())
        run.check_memory()
        run.look()
        report = JoinReport(len(asked), options.k, batches=len(files.batches))
        job = _job(files, asked, options)
        with told_when_full(partial(_disk_full_message, target, partials.folder)):
            partials.begin(job)
            run.set_nprobe(report)
            run.search(report)
            best = gather(partials, executor, len(files.batches))
            blocks = partial(read_blocks, partials, best, group_queries(options.k))
            write_result(target, blocks, files, query_ids, report)
        partials.remove()
    report.seconds = time.perf_counter() - began
    return report


@contextmanager
def _executor(options: JoinOptions) -> Iterator[Executor]:
    """Hold the executor of the tasks; BLAS has one thread meanwhile."""
    executor = make_executor(options.executor, options.workers, options.ray_address, options.memory, _warm_up)
    try:
        with threadpool_limits(1):
            yield executor
    finally:
        executor.close()


def _warm_up() -> None:
    """Do nothing: a worker that calls this has imported the tasks of a join."""


def check_nprobe(files: IvfFiles, nprobe: int | None) -> None:
    """Refuse more lists than there are.

    Raises
    ------
    ConfigError
    """
    n_lists = files.centroids.n_lists
    if nprobe is not None and nprobe > n_lists:
        raise ConfigError(
            f"nprobe: expected at most {n_lists:,}, the lists of {files.path}, got {nprobe:,}; {n_lists:,} is exact"
        )


def _job(files: IvfFiles, queries: Queries, options: JoinOptions) -> dict[str, Any]:
    """Return the parameters that decide the result."""
    return {
        "index": files.manifest.state,
        "queries": queries.digest(),
        "k": options.k,
        "nprobe": options.nprobe,
        "recall": options.recall,
    }


def _disk_full_message(out: Path, folder: Path, path: str, reason: str) -> str:
    """Say that the disk is full, and what to do."""
    return (
        f"out: {path or out}: {reason}; partial results are kept in {folder}; free some space and run again"
    )
