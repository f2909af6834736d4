"""Batches of an IVF index in memory, one after the other: the next loads while the current one is searched.

Algorithm 1 of the Batch Similarity Search paper, double-buffered. A batch that cannot be read does not keep the others
from being searched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.rows import (
    PQ,
    RABITQ,
    SQ8,
    Lists,
    RowFormat,
    gather_ids,
    plain_rows,
    without_deleted,
)
from indexmill.formats.errors import CorruptFile, FormatError
from indexmill.formats.ivf.batch import BatchFile, ids_offset, list_pages
from indexmill.formats.ivf.centroids import Centroids
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.pagefile.direct import aligned_buffer, read_section
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.join.spans import Span
from indexmill.pipeline.mill.progress import Progress


@dataclass(frozen=True)
class Loaded:
    """Lists of a batch in memory, without deleted vectors.

    Attributes
    ----------
    span : Span
    lists : Lists
        Good until the batch after the next one is asked for.
    bytes : int
        That were read.
    seconds : float
        From its first read to its last check.
    """

    span: Span
    lists: Lists
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Unread:
    """Lists of a batch that cannot be read, and why."""

    span: Span
    error: FormatError | OSError


def row_format(shared: Centroids) -> RowFormat:
    """Return the meaning of the rows of an index's lists."""
    if shared.scale is not None:
        return RowFormat(
            SQ8, shared.dim, shared.row_bytes, scale=np.require(shared.scale, requirements=["C", "W"])
        )
    if shared.codebook is not None:
        pivots = np.zeros((256, shared.dim), np.float32)  # so that no byte of a damaged list leads outside
        pivots[: len(shared.codebook.pivots)] = shared.codebook.pivots
        offsets = shared.codebook.offsets.astype(np.int64)
        return RowFormat(PQ, shared.dim, shared.row_bytes, pivots=pivots, offsets=offsets)
    if shared.rabitq is not None:
        square = shared.max_norm**2 if shared.metric == "ip" else 0.0
        return RowFormat(RABITQ, shared.dim, shared.row_bytes, square=square)
    return plain_rows(np.dtype(shared.dtype), shared.dim)


def buffers_bytes(index: IvfFiles) -> int:
    """Return the memory of two batches and their ids."""
    largest = max(file.bytes for file in index.batches)
    most = index.centroids.n_vectors * index.centroids.copies
    rows = min(largest // (index.centroids.row_bytes + 4), most)
    return 2 * (largest + 4 * rows)


#: Called when a batch of so many bytes was read and checked that began at this time of `time.perf_counter`.
Pace = Callable[[int, float], None]


def load_batches(
    index: IvfFiles, numbers: Iterable[int], *, ahead: bool = True, pace: Pace | None = None
) -> Iterator[Loaded | Unread]:
    """Yield whole batches in order; see `load_spans`."""
    n_lists = index.centroids.n_lists
    return load_spans(index, (Span(number, 0, n_lists) for number in numbers), ahead=ahead, pace=pace)


def load_spans(
    index: IvfFiles, spans: Iterable[Span], *, ahead: bool = True, pace: Pace | None = None
) -> Iterator[Loaded | Unread]:
    """Yield batches, or parts of them, in order, each while the one after it is read on another thread.

    Memory: two batches (`buffers_bytes`).

    Parameters
    ----------
    spans : iterable of Span
        Asked for the next one when its lists are about to be read.
    ahead : bool
        Whether to read one batch while another is searched, as opposed to when the next one is asked for.
    pace : callable, optional
        Runs on the thread that reads.
    """
    largest = max(file.bytes for file in index.batches)
    buffers = [aligned_buffer(largest) for _ in range(1 + ahead)]  # memory that is not touched takes none
    queue = iter(spans)
    with ThreadPoolExecutor(1, "join-load") as thread:

        def start(i: int) -> Future[Loaded | Unread] | None:
            span = next(queue, None)
            if span is None:
                return None
            return thread.submit(_load, index, span, buffers[i % len(buffers)], pace)

        i, pending = 0, start(0)
        while pending is not None:
            loaded = pending.result()
            i += 1
            if ahead:
                pending = start(i)
            yield loaded
            del loaded
            if not ahead:
                pending = start(i)


def every_batch(
    index: IvfFiles, progress: Progress, stage: str, refused: Callable[[int], tuple[str, str]]
) -> Iterator[Loaded]:
    """Yield all batches in order, as stage `stage` of `progress`.

    Parameters
    ----------
    refused : callable
        Returns the words before and behind the errors of so many batches that cannot be read.

    Raises
    ------
    CorruptFile
        If batches cannot be read, naming all, once the others were yielded.
    """
    unread = []
    progress.start(stage, len(index.batches), "batches")
    for batch in load_batches(index, range(len(index.batches))):
        if isinstance(batch, Unread):
            unread.append(f"  {batch.error}")
        else:
            yield batch
            progress.advance(1)
    progress.finish()
    if unread:
        before, behind = refused(len(unread))
        raise CorruptFile("\n".join([before, *unread, behind]))


def _load(
    index: IvfFiles, span: Span, buffer: NDArray[np.uint8], pace: Pace | None = None
) -> Loaded | Unread:
    began = time.perf_counter()
    try:
        with index.open_batch(span.batch) as batch:
            entries = batch.directory[span.first : span.last]
            pages = int(list_pages(entries["size"], batch.row_bytes).sum())
            data = buffer[: pages * PAGE_BYTES]
            read_section(batch.file, "lists", data, int(entries["first_page"][0]), pages)
            lists = _as_lists(batch, entries, data)
            if len(index.deleted):
                lists = without_deleted(lists, index.deleted, batch.row_bytes)
            if pace is not None:
                pace(len(data), began)
            return Loaded(span, lists, len(data), time.perf_counter() - began)
    except (FormatError, OSError) as error:
        return Unread(span, error)


def _as_lists(batch: BatchFile, entries: NDArray[np.void], data: NDArray[np.uint8]) -> Lists:
    """Present the bytes of consecutive lists of section ``lists``, whose entries of the directory are given.

    Raises
    ------
    CorruptFile
        If ids are not of this batch, or do not ascend in a list.
    """
    sizes, pages = entries["size"].astype(np.int64), entries["first_page"].astype(np.int64)
    at = (pages - pages[0]) * PAGE_BYTES
    lists = Lists(data, entries["list"].astype(np.uint32), sizes, at, np.empty(sizes.sum(), np.uint32))
    starts = lists.starts
    gather_ids(data, at + ids_offset(sizes, batch.row_bytes), starts, lists.ids)
    batch.check_ids(lists.ids, starts[:-1])
    return lists
