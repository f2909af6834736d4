"""The two policies of grouping: ChunkFiles and TempFiles (eCP study, section 4)."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.tally import Tally, forget, sync, sync_filesystem
from indexmill.formats.chunks.tempfiles import AppendFiles, as_bytes, member_dtype, members
from indexmill.formats.chunks.writer import BATCH_BYTES, sorted_pairs, write_chunk
from indexmill.formats.errors import ConfigError
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.mill.external_sort import SORT_BYTES, sorted_records

#: The least memory of the external sort: below, batches would be too small to read well.
_LEAST_MERGE_BYTES = 16 << 20
#: Files that this process keeps open beside chunk files, more than enough.
_OTHER_FILES = 64


class ChunkFiles:
    """Each in-buffer becomes one sorted chunk file; an external sort reads them all at once.

    Memory: `write_chunk` for one in-buffer; a merge takes twice the in-buffer, at least 16 MiB, and one piece more.

    Parameters
    ----------
    folder : Path
        There and empty.
    n_leaders, vector_bytes, in_buffer : int
    most_buffers : int
        In-buffers there will be, at most: so many files a merge has open.

    Raises
    ------
    ConfigError
        If a process may not open so many files.
    """

    def __init__(
        self, folder: Path, n_leaders: int, vector_bytes: int, in_buffer: int, most_buffers: int
    ) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit != resource.RLIM_INFINITY and most_buffers > limit - _OTHER_FILES:
            least = -(-in_buffer * most_buffers // max(1, limit - _OTHER_FILES))
            raise ConfigError(
                f"in-buffer: {in_buffer:,} bytes make {most_buffers:,} chunk files, of which a process may open "
                f"{limit:,}; give at least {least:,} bytes, or raise the limit (ulimit -n)"
            )
        self.assigning, self.merging = Tally(), Tally()
        self._folder = folder
        self._n_leaders = n_leaders
        self._merge_bytes = max(2 * in_buffer, _LEAST_MERGE_BYTES)
        share = (8 + vector_bytes) / (8 + SORT_BYTES + vector_bytes)
        self._batch_bytes = min(BATCH_BYTES, int(share * self._merge_bytes) // (4 * most_buffers + 12))
        self._chunks: list[Path] = []

    def add(self, records: Records) -> None:
        """See `Policy`."""
        chunk = self._folder / f"{len(self._chunks):06d}.chunk"
        self._chunks.append(chunk)
        with naming(chunk):
            failpoint("task-written")
            bounds = (0, self._n_leaders)
            write_chunk(chunk, records, bounds, batch_bytes=self._batch_bytes, tally=self.assigning)
            sync(chunk, self.assigning)

    def settle(self) -> None:
        """See `Policy`; each chunk file was synced when it was written."""
        sync(self._folder, self.assigning)

    def forget(self) -> None:
        """See `Policy`."""
        for chunk in self._chunks:
            forget(chunk)

    def merge(self, out: BinaryIO) -> NDArray[np.int64]:
        """See `Policy`."""
        sizes = np.zeros(self._n_leaders, np.int64)
        pieces = sorted_records(
            self._chunks, 0, self._n_leaders, buffer_bytes=self._merge_bytes, tally=self.merging
        )
        writing: Future[None] | None = None
        with ThreadPoolExecutor(1, "merge-write") as writer:  # while the next piece is merged
            for piece in pieces:
                sizes += np.bincount(piece.keys, minlength=self._n_leaders)
                if writing is not None:
                    writing.result()
                writing = writer.submit(_write_members, out, piece)
            if writing is not None:
                writing.result()
        return sizes


class TempFiles:
    """Each leader has one append file, opened, appended to and closed for every in-buffer that has vectors of it.

    Memory: the rows of one in-buffer, sorted, and 24 bytes a vector; a merge takes 8 MiB.

    Deviation from the paper: files are synced together, by one call for their file system, because a sync of each
    of 10,000 files takes longer than all else.

    Parameters
    ----------
    folder : Path
        There and empty.
    n_leaders : int
    """

    def __init__(self, folder: Path, n_leaders: int) -> None:
        self.assigning, self.merging = Tally(), Tally()
        self._folder = folder
        self._files = AppendFiles(folder)
        self._sizes = np.zeros(n_leaders, np.int64)
        self._row_bytes = 0

    def add(self, records: Records) -> None:
        """See `Policy`."""
        pairs, order = sorted_pairs(records)
        keys = (pairs >> np.uint64(32)).astype(np.int64)
        rows = members(records, order)
        self._row_bytes = rows.itemsize
        data = as_bytes(rows)
        leaders, starts, counts = np.unique(keys, return_index=True, return_counts=True)
        bounds = (np.append(starts, len(keys)) * self._row_bytes).tolist()
        with naming(self._folder):
            failpoint("task-written")
            for leader, (start, end) in zip(leaders.tolist(), pairwise(bounds), strict=True):
                self._files.append(leader, data[start:end], self.assigning)
        self._sizes[leaders] += counts

    def settle(self) -> None:
        """See `Policy`."""
        with naming(self._folder):
            sync_filesystem(self._folder, self.assigning)

    def forget(self) -> None:
        """See `Policy`."""
        for leader in np.flatnonzero(self._sizes).tolist():
            self._files.forget(leader)

    def merge(self, out: BinaryIO) -> NDArray[np.int64]:
        """See `Policy`."""
        for leader in np.flatnonzero(self._sizes).tolist():
            self._files.copy(leader, int(self._sizes[leader]) * self._row_bytes, out, self.merging)
        return self._sizes


def _write_members(out: BinaryIO, piece: Records) -> None:
    out.write(as_bytes(members(piece)))


def cluster_bytes(n_vectors: int, vector_bytes: int) -> int:
    """Return the bytes of the merged file, and of the rows of all append files."""
    return n_vectors * member_dtype(vector_bytes).itemsize


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the name of a file to system errors that name none."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise
