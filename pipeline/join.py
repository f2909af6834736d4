"""A join: the k nearest vectors of every query in an IVF index that does not fit memory, batch after batch.

Batch Similarity Search (section 4.2, Algorithm 1): every batch is read once, front to back, and searched for all
queries before the next. What was found in a batch is kept until the join is finished, so that a join that was killed,
or that found a batch damaged, goes on with the batches that are left.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.builders.scan import Nearest, nothing, united
from indexmill.formats.errors import BudgetError, ConfigError, CorruptFile
from indexmill.formats.ivf_index import IvfFiles
from indexmill.pipeline.budget import FIXED_BYTES
from indexmill.pipeline.generation import scratch_directory
from indexmill.pipeline.join_batches import Loaded, Unread, buffers_bytes, load_batches
from indexmill.pipeline.join_partials import Partials
from indexmill.pipeline.join_probes import learn_nprobe
from indexmill.pipeline.join_result import write_result
from indexmill.pipeline.join_search import Search, search_bytes, stored_queries
from indexmill.pipeline.progress import Progress, Silent
from indexmill.pipeline.publish import output_lock
from indexmill.pipeline.spec import DEFAULT_MEMORY

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class JoinOptions:
    """What is asked, and how it runs.

    Attributes
    ----------
    k : int
    nprobe : int, optional
        Lists that a query probes in every batch.
    recall : float, optional
        In its place: the share of true neighbours to reach, for which `nprobe` is learnt from some queries.
    memory : int
        Bytes beside the page cache.
    workers : int
        Threads; they do not reach the result.
    work : path, optional
        Directory for partial results; by default they lie beside the result.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    k: int = 10
    nprobe: int | None = None
    recall: float | None = None
    memory: int = DEFAULT_MEMORY
    workers: int = 2
    work: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"k: expected at least 1, got {self.k}")
        if (self.nprobe is None) == (self.recall is None):
            raise ConfigError(
                "nprobe, recall: expected one of them, the lists to probe or the recall to reach"
            )
        if self.nprobe is not None and self.nprobe < 1:
            raise ConfigError(f"nprobe: expected at least 1, got {self.nprobe}")
        if self.recall is not None and not 0 < self.recall <= 1:
            raise ConfigError(f"recall: expected above 0 and at most 1, got {self.recall}")
        if not 1 <= self.workers <= 1024:
            raise ConfigError(f"workers: expected 1 to 1024, got {self.workers}")


@dataclass
class JoinReport:
    """What a join did.

    Attributes
    ----------
    queries, k, nprobe : int
    batches, reused : int
        Batches of the index, and those whose results an earlier run had left.
    rows : int
        Of the result.
    short : int
        Queries with fewer than k neighbours in the lists they probed.
    recall, recall_low, recall_high : float, optional
        Where `nprobe` was learnt: on the queries it was learnt from, with the 95% interval.
    learnt_from : int, optional
        How many queries that was.
    load_bytes : int
    load_seconds, search_seconds, seconds : float
        Loading and searching go on at the same time.
    """

    queries: int
    k: int
    nprobe: int = 0
    batches: int = 0
    reused: int = 0
    rows: int = 0
    short: int = 0
    recall: float | None = None
    recall_low: float | None = None
    recall_high: float | None = None
    learnt_from: int | None = None
    load_bytes: int = 0
    load_seconds: float = 0.0
    search_seconds: float = 0.0
    seconds: float = 0.0


def run_join(
    queries: NDArray[Any],
    index: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: JoinOptions,
    query_ids: pa.Array | None = None,
    progress: Progress | None = None,
) -> JoinReport:
    """Write the neighbours of all queries to a Parquet file; run again after a crash, it goes on where it stopped.

    Parameters
    ----------
    queries : array, shape (n_queries, dim)
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
    with output_lock(target), threadpool_limits(1):
        files = IvfFiles(os.fspath(index))
        check_nprobe(files, options.nprobe)
        check_memory(files, len(np.atleast_2d(queries)), options)
        rows = stored_queries(files.centroids, queries)
        partials = Partials(scratch_directory(target, options.work, "join"), _job(files, rows, options))
        report = JoinReport(len(rows), options.k, batches=len(files.batches))
        with _room(target, partials.folder):
            _set_nprobe(report, files, queries, options, partials, progress or Silent())
            best = _search(report, files, queries, options, partials, progress or Silent())
            write_result(target, best, files, query_ids, report, options.k)
        partials.remove()
    report.seconds = time.perf_counter() - began
    return report


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


def check_memory(files: IvfFiles, n_queries: int, options: JoinOptions) -> None:
    """Refuse a join whose batches and queries do not fit its memory.

    Raises
    ------
    BudgetError
        Saying what is needed.
    """
    c = files.centroids
    nprobe = options.nprobe or min(c.n_lists, 256)
    ids = sum(file.bytes for file in files.manifest.files if file.name == "ids.imx")
    search = search_bytes(n_queries, c.dim, options.k * c.copies, nprobe, options.workers)
    need = FIXED_BYTES + 8 * c.centroids.size + buffers_bytes(files) + search + 2 * ids
    if need > options.memory:
        raise BudgetError(
            f"memory: two batches of {files.path} and {n_queries:,} queries need {need:,} bytes, the budget is "
            f"{options.memory:,}; give more, ask fewer queries at a time, or build with smaller --batch-vectors"
        )


def _job(files: IvfFiles, queries: NDArray[Any], options: JoinOptions) -> dict[str, Any]:
    """Return what decides the result."""
    return {
        "index": files.manifest.build_id,
        "queries": [str(queries.dtype), list(queries.shape), hashlib.sha256(queries.tobytes()).hexdigest()],
        "k": options.k,
        "nprobe": options.nprobe,
        "recall": options.recall,
    }


def _set_nprobe(
    report: JoinReport, files: IvfFiles, queries: NDArray[Any], options: JoinOptions, partials: Partials,
    progress: Progress,
) -> None:  # fmt: skip
    if options.nprobe is not None:
        report.nprobe = options.nprobe
        return
    assert options.recall is not None
    if not partials.facts:
        learnt = learn_nprobe(files, queries, options.k, options.recall, options.workers, progress)
        partials.remember(asdict(learnt))
    for name, value in partials.facts.items():
        setattr(report, name, value)


def _search(
    report: JoinReport, files: IvfFiles, queries: NDArray[Any], options: JoinOptions, partials: Partials,
    progress: Progress,
) -> Nearest:  # fmt: skip
    """Return the nearest of each query in all batches.

    Raises
    ------
    CorruptFile
        If a batch cannot be read, once all others are searched.
    """
    best, left = nothing(len(queries), options.k), []
    for number in range(len(files.batches)):
        found = partials.read(number, len(queries), options.k)
        if found is None:
            left.append(number)
        else:
            best, report.reused = united([best, found], options.k), report.reused + 1
    search = Search(files.centroids, queries, options.k, report.nprobe, options.workers)
    unread: list[Unread] = []
    progress.start("join", len(left), "batches")
    for batch in load_batches(files, left):
        if isinstance(batch, Unread):
            unread.append(batch)
            continue
        began = time.perf_counter()
        found = search.run(batch.lists)
        report.search_seconds += time.perf_counter() - began
        _count(report, batch)
        partials.write(batch.number, found)
        best = united([best, found], options.k)
        progress.advance(1)
    progress.finish()
    if unread:
        raise _unread_error(files, unread, partials)
    return best


def _count(report: JoinReport, batch: Loaded) -> None:
    report.load_bytes += batch.bytes
    report.load_seconds += batch.seconds


def _unread_error(files: IvfFiles, unread: list[Unread], partials: Partials) -> CorruptFile:
    names = "\n".join(f"  {one.error}" for one in unread)
    return CorruptFile(
        f"{files.path}: {len(unread)} of {len(files.batches)} batches cannot be read:\n{names}\n"
        f"what was found in the others is kept in {partials.folder}; restore these files and run again"
    )


@contextmanager
def _room(out: Path, folder: Path) -> Iterator[None]:
    """Say what to do about a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise BudgetError(
            f"out: {error.filename or out}: {os.strerror(error.errno)}; partial results are kept in {folder}; free "
            "some space and run again"
        ) from error
