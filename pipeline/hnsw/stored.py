"""Raw vectors and ids on object storage, read in pieces by ranges."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.file import RowBlock, Vectors, take_by_runs
from indexmill.formats.sources.joined import JoinedSource, VectorSource
from indexmill.formats.urls.pieces import Pieces
from indexmill.pipeline.hnsw.parameters import ID_DTYPE, HnswJob
from indexmill.pipeline.urls.storage import Storage

#: Ids read at a time.
_IDS = 1 << 20


class RawVectors:
    """The vectors of a job as a file of a source; storage is reached when rows are read.

    Parameters
    ----------
    job : HnswJob
    storage : Storage, optional
        Of the container; without it the vectors have a shape and no rows.
    """

    id_type = "none"
    metadata_schema = None

    def __init__(self, job: HnswJob, storage: Storage | None) -> None:
        self.name = job.vectors
        self.n_rows, self.dim, self.dtype = job.n, job.dim, job.built_dtype
        self._job = job
        self._pieces = None if storage is None else storage.pieces(job.vectors)

    def blocks(self, batch_rows: int) -> Iterator[RowBlock]:
        """Yield all rows in order; see `VectorFile.blocks`."""
        for first in range(0, self.n_rows, batch_rows):
            yield RowBlock(first, self._range(first, min(first + batch_rows, self.n_rows)))

    def take(self, rows: NDArray[np.int64], out: Vectors, positions: NDArray[np.int64]) -> None:
        """Read single rows; see `VectorFile.take`."""
        take_by_runs(rows, out, positions, self.dim * self._job.sent_dtype.itemsize, self._range)

    def _range(self, first: int, last: int) -> Vectors:
        assert self._pieces is not None
        row_bytes = self.dim * self._job.sent_dtype.itemsize
        data = _read(self._pieces, first * row_bytes, (last - first) * row_bytes)
        values = np.frombuffer(data, self._job.sent_dtype).reshape(-1, self.dim)
        with np.errstate(over="ignore"):
            built = np.ascontiguousarray(values, self.dtype)
        if self._job.component == "float16" and (lost := np.isinf(built) & np.isfinite(values)).any():
            row, component = np.argwhere(lost)[0]
            raise InputError(
                f"{self.name}: row {first + row}: component {component} is {values[row, component]!s}, which overflows "
                f"float16; expected at most {np.finfo(np.float16).max:,.0f} in magnitude; use float"
            )
        return built


def raw_source(job: HnswJob, storage: Storage | None) -> VectorSource:
    """Return the vectors of a job as a source; `storage` is as of `RawVectors`."""
    return JoinedSource([RawVectors(job, storage)])


def check_objects(job: HnswJob, storage: Storage) -> list[str]:
    """Return text that tells the objects of a job from others, before any is read.

    Raises
    ------
    InputError
        If an object is missing, or has another size than the job says.
    StorageError
        If storage refuses.
    """
    row = f"{job.dim:,} x {job.sent_dtype.itemsize} bytes"
    told = []
    for name, expected, what in (
        (job.vectors, job.vectors_bytes, f"{job.n:,} vectors of {row}"),
        (job.ids, job.ids_bytes, f"{job.n:,} ids of {ID_DTYPE.itemsize} bytes"),
    ):
        seen = storage.seen(name)
        if seen is None:
            raise InputError(
                f"{name}: not found in {storage.place}; expected {what}; check path and container"
            )
        if seen.bytes != expected:
            raise InputError(
                f"{name}: {seen.bytes:,} bytes; expected {what}, {expected:,} bytes; check dimension, doc_count and "
                "data_type"
            )
        told.append(f"{storage.place} {name} {seen.bytes} {seen.version}")
    return told


def check_unchanged(job: HnswJob, storage: Storage, objects: list[str]) -> None:
    """Refuse objects that were replaced while they were read.

    Parameters
    ----------
    objects : list of str
        What `check_objects` returned before.

    Raises
    ------
    InputError, StorageError
        As `check_objects`, and if an object is another one.
    """
    for name, before, now in zip((job.vectors, job.ids), objects, check_objects(job, storage), strict=True):
        if now != before:
            raise InputError(
                f"{name}: replaced in {storage.place} while it was read; request the build again"
            )


def read_ids(job: HnswJob, storage: Storage) -> Iterator[NDArray[np.int32]]:
    """Yield the ids in blocks.

    Raises
    ------
    InputError
        If one is negative, or no larger than the one before it, or the object is gone.
    StorageError
        If storage refuses.
    """
    pieces, last = storage.pieces(job.ids), -1
    for first in range(0, job.n, _IDS):
        size = min(_IDS, job.n - first) * ID_DTYPE.itemsize
        block = np.frombuffer(_read(pieces, first * ID_DTYPE.itemsize, size), ID_DTYPE)
        before = np.concatenate([np.array([last], ID_DTYPE), block[:-1]])
        if (wrong := np.flatnonzero(block <= before)).size:
            at = int(wrong[0])
            after = f", after {before[at]:,}" if first + at else ""
            raise InputError(
                f"{job.ids}: id {first + at} is {block[at]:,}{after}; expected ids from 0 on, each larger than the one "
                "before, as k-NN reads them; check that it holds the ids of these vectors"
            )
        last = int(block[-1])
        yield block


def _read(pieces: Pieces, offset: int, size: int) -> bytes:
    try:
        return pieces.read(offset, size)
    except FileNotFoundError:
        raise InputError(f"{pieces.name}: deleted while it was read; put it again") from None
