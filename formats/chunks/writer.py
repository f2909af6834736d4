"""Writer of chunk files (docs/formats/chunk.md), from unsorted records or from sorted runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.chunks.reader import (
    DTYPE_KEY,
    ENTRY,
    FOOTER,
    MAGIC,
    NOTES_KEY,
    RUN_END_ENCODED,
    VERSION,
    VERSION_KEY,
    Records,
    below,
    joined,
    rows_of,
)
from indexmill.formats.chunks.tally import Tally, create
from indexmill.formats.pagefile.frame import checksum

Compression = Literal["none", "zstd"]

#: Approximate bytes of keys, values and payload of a record batch: large enough for sequential reads, small enough that
#: a sort holds one batch of each of hundreds of chunk files.
BATCH_BYTES = 1 << 20
_WRITTEN_MESSAGE_BYTES = 8192  # upper bound of an Arrow message in the file, without its columns
_DTYPE_KINDS = "biufcV"


def write_chunk(
    path: str | Path,
    records: Records,
    bounds: Sequence[int],
    *,
    rows: NDArray[np.integer] | None = None,
    compression: Compression = "none",
    batch_bytes: int = BATCH_BYTES,
    notes: Mapping[str, int] | None = None,
    tally: Tally | None = None,
) -> None:
    """Sort records by (key, value) and write them as one chunk file; the caller syncs it.

    Records with equal key and value keep their order. The same records in the same order give the same bytes.

    Memory besides `records`: 24 bytes a record during the sort, 16 during the write, and three batches; the payload is
    not copied as a whole. Time: one sort of the pairs, one pass over the payload in random order, one sequential write.

    Parameters
    ----------
    path : path-like
        Replaced if it exists.
    records : Records
    bounds : sequence of int, ascending
        A batch has no keys on both sides of a bound. For all keys, ``bounds[0] <= key < bounds[-1]``.
    rows : integer array, shape (m,), optional
        Record i has payload ``records.payload[rows[i]]`` instead of ``payload[i]``, so that records share payloads.
    compression : {"none", "zstd"}
        Compression of all columns. No build compresses: zstd saves 22 to 60% of the bytes and takes 1.04 to 2.3 times
        the seconds to write and sort (part `chunks` of the benchmark `assign`).
    batch_bytes : int
        Bytes of a batch, which has at least one record.
    notes : mapping of str to int, optional
        A few figures of all records, for those who read the file.
    tally : Tally, optional
        Counts the system calls for the file.

    Raises
    ------
    ValueError
        If shapes or types disagree, or a key is outside `bounds`.
    OSError
        If the file cannot be written.
    """
    dtype, width = _check(records, rows)
    pairs, order = sorted_pairs(records)
    keys = (pairs >> np.uint64(32)).astype(np.uint32)
    cuts = [below(keys, bound) for bound in bounds]
    if len(keys) and (len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != len(keys)):
        raise ValueError(
            f"keys lie in {keys[0]}..{keys[-1]}, the bounds go from {[*bounds][:1]} to {[*bounds][-1:]}, exclusive"
        )
    runs = 1 + np.count_nonzero(keys[1:] != keys[:-1])
    del keys
    schema = _schema(dtype, width, notes, run_end_encoded=2 * int(runs) <= len(pairs))
    source = rows_of(records.payload)
    with create(path, tally) as file:
        batch_rows = max(1, batch_bytes // (8 + width))
        writer = _Writer(file, schema, compression, batch_rows, width)
        gathered = np.empty(min(batch_rows, len(pairs)), source.dtype)
        for first, last in _batches(cuts, batch_rows):
            taken = order[first:last] if rows is None else rows[order[first:last]]
            payload = gathered[: last - first]
            np.take(source, taken, out=payload, mode="clip")  # "raise" would copy; rows were checked
            writer.write(pairs[first:last], payload)
        writer.finish()


def write_runs(
    path: str | Path, runs: Iterable[Records], *, run_end_encoded: bool, batch_bytes: int = BATCH_BYTES,
    notes: Mapping[str, int] | None = None,
) -> None:  # fmt: skip
    """Write sorted records, a run at a time, as one chunk file; the caller syncs it.

    A batch has records of one run. Memory: a run, 24 bytes a record of it, and two batches.

    Parameters
    ----------
    path : path-like
        Replaced if it exists.
    runs : iterable of Records, at least one
        Perhaps empty; sorted by (key, value) within and across runs, with one type and width of payload.
    run_end_encoded : bool
        Whether keys are stored as runs of equal keys: worthwhile if these have 2 records or more on average.
    batch_bytes : int
        Bytes of a batch, which has at least one record.
    notes : mapping of str to int, optional
        See `write_chunk`.

    Raises
    ------
    ValueError
        If shapes or types disagree, or records are not sorted.
    OSError
        If the file cannot be written.
    """
    writer, before = None, -1
    with create(path) as file:
        for run in runs:
            dtype, width = _check(run, None)
            pairs = joined(run.keys, run.values)
            batch_rows = max(1, batch_bytes // (8 + width))
            if writer is None:
                schema = _schema(dtype, width, notes, run_end_encoded=run_end_encoded)
                writer = _Writer(file, schema, "none", batch_rows, width)
            if not len(pairs):
                continue
            if int(pairs[0]) < before or (pairs[1:] < pairs[:-1]).any():
                raise ValueError("records: not in order of key and value")
            before = int(pairs[-1])
            source = rows_of(run.payload)
            for first, last in _batches([0, len(pairs)], batch_rows):
                writer.write(pairs[first:last], source[first:last])
        if writer is None:
            raise ValueError("runs: none; expected at least one")
        writer.finish()


class _Writer:
    """Writer of stream, directory and footer of one chunk file; every message is encoded in one reused buffer."""

    def __init__(
        self, file: BinaryIO, schema: pa.Schema, compression: Compression, batch_rows: int, width: int
    ) -> None:
        self._file = file
        self._schema = schema
        self._width = width
        self._entries: list[tuple[int, ...]] = []
        self._head = schema.serialize().to_pybytes()
        self._at = len(self._head)
        columns = batch_rows * (12 + width)  # 8 bytes for a run of keys
        self._sink = _Sink(len(self._head) + columns + columns // 64 + _WRITTEN_MESSAGE_BYTES)
        options = pa.ipc.IpcWriteOptions(
            compression=None if compression == "none" else compression, use_threads=False
        )
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._sink, "w"), schema, options=options)

    def write(self, pairs: NDArray[np.uint64], payload: NDArray[np.void]) -> None:
        """Write one batch: sorted pairs, and their payload, contiguous."""
        keys = (pairs >> np.uint64(32)).astype(np.uint32)
        values = pairs.astype(np.uint32)
        field = self._schema.field("payload").type
        data = pa.FixedSizeBinaryArray.from_buffers(field, len(pairs), [None, pa.py_buffer(payload)])
        columns = [_encoded(keys, self._schema.field("key").type), pa.array(values), data]
        self._stream.write_batch(pa.record_batch(columns, schema=self._schema))
        message = self._taken()
        ends = (int(keys[0]), int(values[0]), int(keys[-1]), int(values[-1]))
        self._entries.append((self._at, len(message), len(pairs), *ends, checksum(message)))
        self._file.write(message)
        self._at += len(message)

    def finish(self) -> None:
        """End the stream, and write directory and footer."""
        self._stream.close()
        end = self._taken()
        directory = np.array(self._entries, ENTRY)
        self._file.write(end)
        self._file.write(directory.tobytes())
        footer = FOOTER.pack(
            MAGIC,
            VERSION,
            len(self._head),
            int(directory["rows"].sum(dtype=np.uint64)),
            len(directory),
            self._at + len(end),
            checksum(self._head),
            checksum(directory.tobytes()),
        )
        self._file.write(footer + checksum(footer).to_bytes(4, "little"))

    def _taken(self) -> pa.Buffer:
        """Return the bytes streamed since the last call, after writing the schema, which precedes the first batch."""
        written = self._sink.take()
        if self._entries:
            return written
        start = len(self._head)
        assert written[:start].to_pybytes() == self._head
        self._file.write(self._head)
        return written[start:]


class _Sink:
    """File object for Arrow that fills one buffer, from its start again after each `take`."""

    closed = False

    def __init__(self, most: int) -> None:
        self._buffer = np.empty(most, np.uint8)
        self._filled = 0

    def write(self, data: Any) -> None:
        """Append the bytes of `data`."""
        end = self._filled + len(data)
        self._buffer[self._filled : end] = np.frombuffer(data, np.uint8)
        self._filled = end

    def take(self) -> pa.Buffer:
        """Return a view of the bytes written since the last call, valid until the next write."""
        taken = pa.py_buffer(self._buffer[: self._filled])
        self._filled = 0
        return taken


def _batches(cuts: Sequence[int], batch_rows: int) -> Iterator[tuple[int, int]]:
    for first, last in pairwise(cuts):
        for at in range(first, last, batch_rows):
            yield at, min(at + batch_rows, last)


def sorted_pairs(records: Records) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the sorted pairs, `joined`, and the stable order that sorts them."""
    pairs = joined(records.keys, records.values)
    order = np.argsort(pairs)
    ranked = pairs[order]
    if (ranked[1:] == ranked[:-1]).any():  # the fast sort is not stable, which matters only for equal pairs
        order = np.argsort(pairs, kind="stable")
    return ranked, order


def _encoded(keys: NDArray[np.uint32], kind: pa.DataType) -> pa.Array:
    if kind != RUN_END_ENCODED:
        return pa.array(keys)
    last = np.append(np.flatnonzero(keys[1:] != keys[:-1]), len(keys) - 1)
    return pa.RunEndEncodedArray.from_arrays(pa.array((last + 1).astype(np.int32)), pa.array(keys[last]))


def _schema(
    dtype: np.dtype[np.generic], width: int, notes: Mapping[str, int] | None, *, run_end_encoded: bool
) -> pa.Schema:
    fields = [
        pa.field("key", RUN_END_ENCODED if run_end_encoded else pa.uint32(), nullable=False),
        pa.field("value", pa.uint32(), nullable=False),
        pa.field("payload", pa.binary(width), nullable=False),
    ]
    noted = {NOTES_KEY: json.dumps(dict(notes))} if notes else {}
    return pa.schema(fields, metadata={VERSION_KEY: str(VERSION), DTYPE_KEY: dtype.str, **noted})


def _check(records: Records, rows: NDArray[np.integer] | None) -> tuple[np.dtype[np.generic], int]:
    """Return the payload's element type and the bytes of one record's payload."""
    keys, values, payload = records
    m = len(payload) if rows is None else len(rows)
    if keys.dtype != np.uint32 or values.dtype != np.uint32:
        raise ValueError(f"keys and values must be uint32, not {keys.dtype} and {values.dtype}")
    if keys.shape != (m,) or values.shape != (m,) or payload.ndim != 2 or not payload.shape[1]:
        raise ValueError(f"shapes {keys.shape}, {values.shape}, {payload.shape} are not those of {m} records")
    if rows is not None and m and not 0 <= int(rows.min()) <= int(rows.max()) < len(payload):
        raise ValueError(f"rows lie in {rows.min()}..{rows.max()}, there are {len(payload)} payloads")
    kind = payload.dtype
    if not payload.flags.c_contiguous or kind.kind not in _DTYPE_KINDS or kind.fields or not kind.isnative:
        raise ValueError(f"payload must be C-contiguous and of a plain native type, not {kind}")
    return kind, payload.shape[1] * kind.itemsize
