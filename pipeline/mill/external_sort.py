"""External sort: the records of many chunk files are streamed in one order, within stated buffers.

The directories of the chunk files say where every batch starts and ends, so the order in which the sort will want
batches is known before it begins (Knuth's forecasting, TAOCP 5.4.6, with the first records known as well as the
last). `_Plan` is that order, and the exact memory it takes. The sort takes in batches in this order, and hands
out all records that come before the first record of the batch that is next; meanwhile one thread reads ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.chunks.reader import ChunkFile, Records, below, bounds_of, joined, rows_of
from indexmill.formats.chunks.tally import Tally
from indexmill.formats.errors import BudgetError
from indexmill.pipeline.mill.descriptors import allow_open

#: Memory of one record while it is sorted, beside its own: its pair as one integer, twice, its place and its rank.
SORT_BYTES = 48
#: Most memory of an Arrow message, once it is read, beside its columns.
READ_MESSAGE_BYTES = 2048
#: A step of more bytes is no faster: it leaves the caches.
STEP_BYTES = 8 << 20


def sorted_records(
    chunks: Sequence[str | Path], first: int, last: int, *, buffer_bytes: int, tally: Tally | None = None
) -> Iterator[Records]:
    """Yield the records with ``first <= key < last`` of all chunk files, in (key, value) order.

    Records that agree in key and value keep the order of `chunks` and, within one, that of the file. What is
    yielded, one piece after the other, does not depend on how records were spread over chunk files and batches,
    nor on `buffer_bytes`; where one piece ends does. A group of equal keys may span pieces. Only batches that
    meet the range are read, each once.

    Memory: at most `buffer_bytes`, with two pieces that the caller may hold (as a loop does with the piece before
    while it asks for the next), and 40 bytes a batch of all `chunks` for their directories.

    Parameters
    ----------
    chunks : sequence of path-like
        All with one type and width of payload.
    first, last : int
    buffer_bytes : int
    tally : Tally, optional
        Counts the calls made for chunk files.

    Yields
    ------
    Records
        At least one; arrays of their own, which the caller may change.

    Raises
    ------
    BudgetError
        If the batches that must be held at once do not fit, naming the smallest `buffer_bytes` that works.
    FormatError, OSError
        If a chunk file cannot be opened or a batch is damaged.
    ValueError
        If chunk files differ in their payload.
    """
    allow_open(len(chunks))
    with ExitStack() as stack:
        files = [stack.enter_context(ChunkFile(chunk, tally)) for chunk in chunks]
        for step, piece_rows in _steps(files, first, last, buffer_bytes):
            for start in range(0, step.rows, piece_rows):
                piece = _empty(files[0], min(piece_rows, step.rows - start))
                step.copy(start, piece)
                yield piece
                del piece


def collect(chunks: Sequence[str | Path], first: int, last: int, *, buffer_bytes: int) -> Records:
    """Return the records with ``first <= key < last`` of all chunk files, in the order of `sorted_records`.

    Memory: exactly the records, and at most `buffer_bytes` while they are collected.

    Parameters
    ----------
    chunks : sequence of path-like, not empty
    first, last, buffer_bytes
        As for `sorted_records`, which also names the errors.
    """
    allow_open(len(chunks))
    with ExitStack() as stack:
        files = [stack.enter_context(ChunkFile(chunk)) for chunk in chunks]
        records = _empty(files[0], sum(_count(file, first, last) for file in files))
        _fill(files, first, last, records, buffer_bytes)
    return records


def fill(chunks: Sequence[str | Path], first: int, last: int, out: Records, *, buffer_bytes: int) -> None:
    """Write the records with ``first <= key < last`` of all chunk files to `out`, in the order of `sorted_records`.

    Memory: at most `buffer_bytes`.

    Parameters
    ----------
    out : Records
        At least as many as there are, with their type and width of payload; those after them stay as they are.
    chunks, first, last, buffer_bytes
        As for `sorted_records`, which also names the errors.
    """
    allow_open(len(chunks))
    with ExitStack() as stack:
        files = [stack.enter_context(ChunkFile(chunk)) for chunk in chunks]
        _fill(files, first, last, out, buffer_bytes)


def _fill(files: Sequence[ChunkFile], first: int, last: int, out: Records, buffer_bytes: int) -> None:
    done = 0
    for step, _ in _steps(files, first, last, buffer_bytes):
        step.copy(0, Records(*(column[done : done + step.rows] for column in out)))
        done += step.rows


def count(chunks: Sequence[str | Path], first: int, last: int) -> int:
    """Return the number of records with ``first <= key < last``.

    The directories alone say so when `first` and `last` are among the bounds the chunk files were written with;
    else the batches that straddle them are read, at most two a chunk file.
    """
    total = 0
    for chunk in chunks:
        with ChunkFile(chunk) as file:
            total += _count(file, first, last)
    return total


def _count(file: ChunkFile, first: int, last: int) -> int:
    directory = file.directory
    meets = (directory["last_key"] >= first) & (directory["first_key"] < last)
    inside = meets & (directory["first_key"] >= first) & (directory["last_key"] < last)
    total = int(directory["rows"][inside].sum(dtype=np.int64))
    for batch in np.flatnonzero(meets & ~inside).tolist():
        keys = file.read(batch).keys
        total += int(np.count_nonzero((keys >= first) & (keys < last)))
    return total


@dataclass(frozen=True)
class _Plan:
    """Batches in the order they are wanted.

    Attributes
    ----------
    file, batch : int arrays, shape (n,)
        Which batch of which chunk file.
    start : uint64 array, shape (n,)
        First pair of the batch, `joined`.
    bytes : int64 array, shape (n,)
        Memory that the batch takes while it is sorted.
    most : int
        Memory at the moment that takes most, with one batch at a time, one read ahead, and pieces of one batch.
    """

    file: NDArray[np.int64]
    batch: NDArray[np.int64]
    start: NDArray[np.uint64]
    bytes: NDArray[np.int64]
    most: int


def _plan(files: Sequence[ChunkFile], first: int, last: int) -> _Plan:
    columns: list[tuple[NDArray[Any], ...]] = []
    for i, file in enumerate(files):
        batch = np.flatnonzero((file.directory["last_key"] >= first) & (file.directory["first_key"] < last))
        entries = file.directory[batch]
        size = entries["rows"].astype(np.int64) * (file.record_bytes + SORT_BYTES) + READ_MESSAGE_BYTES
        columns.append((np.full(len(batch), i), batch, *bounds_of(entries), size, entries["bytes"]))
    chunk, batch, low, high, size, message = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    if not len(chunk):
        return _Plan(chunk, batch, low, size, 0)
    # Order by (pair, chunk file): the rank of the pair and the chunk file in one integer.
    rank = np.unique(np.concatenate([low, high]), return_inverse=True)[1].reshape(2, -1)
    starts, ends = rank * len(files) + chunk
    order = np.lexsort((batch, starts))
    size, starts, ends = size[order], starts[order], ends[order]
    # A batch is let go before the first one is read that starts after its last record.
    gone = np.maximum(np.searchsorted(starts, ends), np.arange(1, len(starts) + 1))
    freed = np.zeros(len(starts) + 1, np.int64)
    np.add.at(freed, gone, size)
    held = np.cumsum(size - freed[:-1])
    ahead = np.append(size[1:], 0)
    # Beside them two pieces, and the message of a compressed batch while its columns are decoded.
    most = int((held + ahead).max() + 2 * size.max()) + int(message.max())
    return _Plan(chunk[order], batch[order], low[order], size, most)


class _Window(NamedTuple):
    """The records of a batch that are not handed out yet."""

    file: int
    batch: int
    pairs: NDArray[np.uint64]
    payload: NDArray[np.void]


class _Step:
    """Sorted records that can be handed out, still where they were read.

    Parameters
    ----------
    windows : list of _Window
        By chunk file and batch, so that a stable sort keeps their order.
    """

    def __init__(self, windows: list[_Window]) -> None:
        pairs = np.concatenate([window.pairs for window in windows])
        order = np.argsort(pairs, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        ends = np.cumsum([len(window.pairs) for window in windows])
        self._pairs = pairs[order]
        self._parts = list(
            zip(np.split(rank, ends[:-1]), (window.payload for window in windows), strict=True)
        )

    @property
    def rows(self) -> int:
        """Return the number of records."""
        return len(self._pairs)

    def copy(self, start: int, out: Records) -> None:
        """Fill `out` with the records from `start` on."""
        end = start + len(out.keys)
        pairs = self._pairs[start:end]
        np.right_shift(pairs, np.uint64(32), out=out.keys, casting="unsafe")
        np.copyto(out.values, pairs, casting="unsafe")
        target = rows_of(out.payload)
        for rank, payload in self._parts:
            low, high = np.searchsorted(rank, (start, end))
            target[rank[low:high] - start] = payload[low:high]


def _steps(
    files: Sequence[ChunkFile], first: int, last: int, buffer_bytes: int
) -> Iterator[tuple[_Step, int]]:
    """Yield steps in order, each with the rows that a piece may have."""
    if len({(file.dtype, file.width) for file in files}) > 1:
        raise ValueError(f"{files[0].path} and others of the same sort differ in their payload")
    plan = _plan(files, first, last) if files else None
    if plan is None or not len(plan.file):
        return
    if plan.most > buffer_bytes:
        raise BudgetError(
            f"{files[0].path} and {len(files) - 1} more: buffers: expected at least {plan.most:,} bytes to sort "
            f"these batches, got {buffer_bytes:,}; raise --memory, or lower --workers"
        )
    spare = min((buffer_bytes - plan.most) // 4, STEP_BYTES)
    piece_rows = (int(plan.bytes.max()) + spare) // files[0].record_bytes
    windows: list[_Window] = []
    with ThreadPoolExecutor(1, "sort-read") as thread:
        groups = _groups(plan.bytes.tolist(), spare)
        pending = thread.submit(_load, files, plan, groups[0], first, last)
        for i, group in enumerate(groups):
            windows += pending.result()
            if i + 1 < len(groups):
                pending = thread.submit(_load, files, plan, groups[i + 1], first, last)
            windows.sort(key=lambda window: window[:2])
            parts, windows = _cut(windows, plan, group.stop)
            if parts:
                yield _Step(parts), piece_rows


def _groups(sizes: list[int], spare: int) -> list[range]:
    """Cut the batches into ranges that are read at a time: one, and more as long as they take `spare` bytes."""
    groups, start, left = [], 0, spare
    for i, size in enumerate(sizes):
        if i > start and size > left:
            groups.append(range(start, i))
            start, left = i, spare
        elif i > start:
            left -= size
    return [*groups, range(start, len(sizes))]


def _load(files: Sequence[ChunkFile], plan: _Plan, group: range, first: int, last: int) -> list[_Window]:
    """Read the batches of a group, without what lies outside the range of keys."""
    windows = []
    for i in group:
        file, batch = int(plan.file[i]), int(plan.batch[i])
        keys, values, payload = files[file].read(batch)
        inside = slice(*(below(keys, bound) for bound in (first, last)))
        pairs = joined(keys[inside], values[inside])
        windows.append(_Window(file, batch, pairs, rows_of(payload)[inside]))
    return windows


def _cut(windows: list[_Window], plan: _Plan, following: int) -> tuple[list[_Window], list[_Window]]:
    """Split what comes before the batch that is `following` in the plan from what does not."""
    if following == len(plan.file):
        return [window for window in windows if len(window.pairs)], []
    start, file = plan.start[following], plan.file[following]
    before, after = [], []
    for window in windows:
        cut = int(np.searchsorted(window.pairs, start, side="right" if window.file <= file else "left"))
        if cut:
            before.append(window._replace(pairs=window.pairs[:cut], payload=window.payload[:cut]))
        if cut < len(window.pairs):
            after.append(window._replace(pairs=window.pairs[cut:], payload=window.payload[cut:]))
    return before, after


def _empty(file: ChunkFile, rows: int) -> Records:
    return Records(
        np.empty(rows, np.uint32), np.empty(rows, np.uint32), np.empty((rows, file.width), file.dtype)
    )
