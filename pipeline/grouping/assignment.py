"""Vectors grouped by their nearest leader through disk, by one of two policies: chunk files or append files.

The eCP study ("Impact of Storage Technology on the Efficiency of Cluster-Based High-Dimensional Index Creation",
section 4) compares them. Both take the vectors one *in-buffer* at a time and end in one file of clusters, the same
byte for byte; they differ in what lies on disk in between. `indexmill bench assign` measures both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.leaders.base import LeaderIndex
from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.tally import Tally
from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.sources.source import VectorSource
from indexmill.formats.sources.validate import check_batch
from indexmill.pipeline.execution.local import run_single_threaded

T = TypeVar("T")
#: Vector ids are uint32.
_MOST_VECTORS = 2**32


class Policy(Protocol):
    """Keeps assigned vectors on disk until they are merged.

    Attributes
    ----------
    assigning, merging : Tally
        Calls made by `add` and `settle`, and by `merge`.
    """

    assigning: Tally
    merging: Tally

    def add(self, records: Records) -> None:
        """Take the vectors of one in-buffer: leaders, vector ids, vectors. Ids ascend from call to call."""

    def settle(self) -> None:
        """Wait until everything is on the disk."""

    def forget(self) -> None:
        """Drop it from the page cache, so that `merge` reads the disk."""

    def merge(self, out: BinaryIO) -> NDArray[np.int64]:
        """Write all clusters to `out`, by leader, vectors by id, as rows of `formats.chunks.tempfiles.member_dtype`.

        Returns
        -------
        int64 array, shape (n_leaders,)
            Vectors of each cluster; a leader may have none.
        """


@dataclass(frozen=True)
class Times:
    """Seconds of an assignment.

    Attributes
    ----------
    assign_s : float
        From the first read to the last byte on the disk.
    distance_s : float
        Of these, while distances were computed.
    read_s, add_s : float
        While in-buffers were read, and while the policy worked, which other threads did meanwhile.
    in_buffers : int
    """

    assign_s: float
    distance_s: float
    read_s: float
    add_s: float
    in_buffers: int


def in_buffer_rows(source: VectorSource, in_buffer: int) -> int:
    """Return how many vectors an in-buffer of so many bytes holds.

    Raises
    ------
    ConfigError
        If it holds none.
    """
    vector_bytes = source.dim * source.dtype.itemsize
    if in_buffer < vector_bytes:
        raise ConfigError(
            f"in-buffer: expected at least {vector_bytes:,} bytes, one vector, got {in_buffer:,}; give more"
        )
    return in_buffer // vector_bytes


def assign(
    source: VectorSource,
    index: LeaderIndex,
    policy: Policy,
    in_buffer: int,
    threads: int,
    advance: Callable[[int], None] = lambda steps: None,
) -> Times:
    """Hand all vectors of `source`, with their nearest leaders, to `policy`.

    Deviation from the paper: while one in-buffer is assigned the next is read and the one before is written, each
    on a thread of its own, so three are in memory.

    Memory: three in-buffers, what `index.nearest` takes, and what the policy takes for one in-buffer.

    Parameters
    ----------
    in_buffer : int
        Bytes of vectors.
    threads : int
        Of the distance computation. They do not reach the result.
    advance : callable
        Told how many vectors were assigned.

    Raises
    ------
    ConfigError
        If the in-buffer is smaller than a vector.
    InputError
        If a vector is no finite one, or there are more than ids.
    OSError
        If the policy cannot write.
    """
    rows = in_buffer_rows(source, in_buffer)
    if source.n_vectors > _MOST_VECTORS:
        raise InputError(
            f"{source.paths[0]}: expected at most {_MOST_VECTORS:,} vectors, got {source.n_vectors:,}; "
            "split the input"
        )
    times: Times = run_single_threaded(_assign, source, index, policy, rows, threads, advance)
    return times


def _assign(
    source: VectorSource,
    index: LeaderIndex,
    policy: Policy,
    rows: int,
    threads: int,
    advance: Callable[[int], None],
) -> Times:
    began = time.perf_counter()
    read, add = Stopwatch(), Stopwatch()
    distance_s, in_buffers = 0.0, 0
    buffers = _in_buffers(source, rows)
    adding: Future[None] | None = None
    with ThreadPoolExecutor(1, "assign-read") as reader, ThreadPoolExecutor(1, "assign-add") as writer:
        reading = reader.submit(read.run, next, buffers, None)
        while (found := reading.result()) is not None:
            ids, vectors = found
            reading = reader.submit(read.run, next, buffers, None)
            start = time.perf_counter()
            leaders = index.nearest(vectors, 1, threads)[:, 0]
            distance_s += time.perf_counter() - start
            if adding is not None:
                adding.result()
            records = Records(np.ascontiguousarray(leaders), ids, vectors)
            adding = writer.submit(add.run, policy.add, records)
            in_buffers += 1
            advance(len(ids))
            del found, vectors, records
        if adding is not None:
            adding.result()
    policy.settle()
    return Times(time.perf_counter() - began, distance_s, read.seconds, add.seconds, in_buffers)


def _in_buffers(source: VectorSource, rows: int) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.generic]]]:
    """Yield vector ids and vectors, read into memory here and now also where a file is mapped."""
    for batch in source.batches(rows):
        check_batch(batch, "l2")
        ids = np.arange(batch.start, batch.start + len(batch.vectors), dtype=np.uint32)
        yield ids, np.array(batch.vectors, order="C")


class Stopwatch:
    """Adds up the seconds of calls.

    Attributes
    ----------
    seconds : float
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return what `function` returns."""
        began = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            self.seconds += time.perf_counter() - began
