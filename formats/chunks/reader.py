"""Reader of chunk files, sorted runs of (key, value, payload) records (docs/formats/chunk.md).

A chunk file is an Arrow stream of record batches, a directory with one entry for each batch, and a footer. An entry has
the place of its batch, and its first and last record, so a range of keys is read from the batches that overlap it.
Every byte is covered by a CRC32C or compared with its only valid value before Arrow decodes it.
`indexmill.formats.chunks.writer` writes these files.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.chunks.tally import Tally
from indexmill.formats.errors import CorruptFile, ForeignFile, FormatError, TooNew, TooOld
from indexmill.formats.pagefile.frame import checksum

#: Version in the footer; a reader refuses any other (`TooNew`, `TooOld`). Chunk files exist only during a build.
VERSION = 1
MAGIC = b"\x89IMCHNK\n"
#: Magic, version, bytes of the schema message, records, batches, offset of the directory, CRC32C of the schema message,
#: CRC32C of the directory, reserved; the CRC32C of these fields follows.
FOOTER = struct.Struct("<8sIIQQQII12x")
FOOTER_BYTES = FOOTER.size + 4
#: Entry of the directory, with key and value of the batch's first and last record.
ENTRY = np.dtype(
    [
        ("offset", "<u8"),
        ("bytes", "<u8"),
        ("rows", "<u4"),
        ("first_key", "<u4"),
        ("first_value", "<u4"),
        ("last_key", "<u4"),
        ("last_value", "<u4"),
        ("crc", "<u4"),
    ]
)
#: Start of every Arrow message, and end of an Arrow stream.
CONTINUATION = b"\xff\xff\xff\xff"
END_OF_STREAM = CONTINUATION + bytes(4)
#: Keys of the schema's metadata: the version, the payload's element type as numpy writes it, and notes as JSON.
VERSION_KEY = b"indexmill.chunk"
DTYPE_KEY = b"indexmill.payload"
NOTES_KEY = b"indexmill.notes"
RUN_END_ENCODED = pa.run_end_encoded(pa.int32(), pa.uint32())

#: Upper limit of the size of a schema message.
_HEAD_BYTES = 4096
#: Without Arrow's own threads, which would take the cores of parallel tasks.
_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)
_REMEDY = "delete it and run the build again, which writes it anew"


class Records(NamedTuple):
    """Records of an external sort, one for each row.

    Attributes
    ----------
    keys, values : uint32 arrays, shape (m,)
        Sort keys: first the key, then the value.
    payload : array, shape (m, width), C-contiguous
        Data of the records, of any type of fixed size.
    """

    keys: NDArray[np.uint32]
    values: NDArray[np.uint32]
    payload: NDArray[Any]


class ChunkFile:
    """A chunk file, opened for reading; footer, schema and directory are checked at once, batches when they are read.

    Memory: 40 bytes a batch for the directory. Reads do not share a position, so threads may share a file.

    Parameters
    ----------
    path : path-like
    tally : Tally, optional
        Counts the system calls for this file.

    Attributes
    ----------
    directory : structured array of `ENTRY`, shape (n_batches,)
    dtype : numpy dtype
        Type of the payload's elements.
    width : int
        Number of elements of a record's payload.
    notes : dict of str to int
        What the writer noted of all records.

    Raises
    ------
    OSError
        If there is no such file.
    ForeignFile
        If it is not a chunk file.
    TooNew, TooOld
        If it has another version of the format.
    CorruptFile
        If it is truncated, or a byte of footer, schema or directory differs from the one written.
    """

    def __init__(self, path: str | Path, tally: Tally | None = None) -> None:
        self.path = Path(path)
        self._tally = tally or Tally()
        self._file = os.open(self.path, os.O_RDONLY)
        self._tally.opens += 1
        try:
            self._open()
        except FormatError as error:
            error.path = str(self.path)
            self.close()
            raise
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; data read from it stays valid."""
        os.close(self._file)
        self._tally.closes += 1

    @property
    def record_bytes(self) -> int:
        """Bytes of one record in memory."""
        return 8 + int(self.width * self.dtype.itemsize)

    def read(self, batch: int) -> Records:
        """Read and check one batch. Memory: the message, and the decoded columns if it is compressed.

        Raises
        ------
        CorruptFile
            If its bytes differ from those written.
        """
        entry = self.directory[batch]
        offset, rows = int(entry["offset"]), int(entry["rows"])
        where = f"batch {batch} (offset {offset})"
        stream = self._read(offset, int(entry["bytes"]), f"batch {batch}", self._schema)
        self._check(f"{where}: CRC32C", int(entry["crc"]), checksum(stream[len(self._schema) :]))
        try:  # the system's pool frees memory at once, so that a merge stays within its buffers
            reader = pa.ipc.open_stream(stream, options=_OPTIONS, memory_pool=pa.system_memory_pool())
            columns = reader.read_next_batch()
        except pa.ArrowException as error:
            raise self._corrupt(where, "an Arrow record batch", error) from None
        self._check(f"{where}: rows", rows, columns.num_rows)
        data = columns.column(2).buffers()[1]
        payload = np.frombuffer(data, self.dtype, rows * self.width).reshape(rows, self.width)
        return Records(_decoded(columns.column(0)), columns.column(1).to_numpy(), payload)

    def _open(self) -> None:
        size = os.fstat(self._file).st_size
        head = os.pread(self._file, _HEAD_BYTES, 0)
        at = size - FOOTER_BYTES
        footer = os.pread(self._file, FOOTER_BYTES, max(at, 0))
        for found in (head, footer):
            self._tally.read(len(found))
        if at < 0 or not footer.startswith(MAGIC):
            self._refuse(head, size)
        where = f"footer (offset {at})"
        stored = int.from_bytes(footer[FOOTER.size :], "little")
        self._check(f"{where}: CRC32C", stored, checksum(footer[: FOOTER.size]))
        _, version, schema_bytes, records, batches, directory_at, schema_crc, crc = FOOTER.unpack_from(footer)
        self._check_version(version)
        self._check(f"{where}: offset of the directory", at - batches * ENTRY.itemsize, directory_at)
        self._schema = self._read_schema(schema_bytes, schema_crc)
        raw = self._read(directory_at, batches * ENTRY.itemsize, "directory")
        self._check(f"directory (offset {directory_at}): CRC32C", crc, checksum(raw))
        self.directory = np.frombuffer(raw, ENTRY)
        self._check_directory(schema_bytes, directory_at, records)

    def _read_schema(self, length: int, crc: int) -> bytes:
        message = self._read(0, length, "schema")
        self._check("schema (offset 0): CRC32C", crc, checksum(message))
        try:
            schema = pa.ipc.read_schema(message)
            self.dtype: np.dtype[Any] = np.dtype(schema.metadata[DTYPE_KEY].decode())
            self.width: int = schema.field("payload").type.byte_width // self.dtype.itemsize
            self.notes: dict[str, int] = json.loads(schema.metadata.get(NOTES_KEY, b"{}"))
        except (pa.ArrowException, KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._corrupt("schema (offset 0)", "the schema of a chunk file", error) from None
        return bytes(message)

    def _check_directory(self, first: int, end: int, records: int) -> None:
        """Check that batches are in order and follow each other without a gap from `first` to the end of the stream."""
        directory = self.directory
        ends = directory["offset"] + directory["bytes"]
        starts = np.concatenate([[first], ends]).astype(np.uint64)
        if (directory["offset"] != starts[:-1]).any():
            raise self._corrupt(f"directory (offset {end})", "batches without a gap", "a gap")
        at = int(starts[-1])
        self._check(f"end of the stream (offset {at}): length", end - at, len(END_OF_STREAM))
        tail = self._read(at, len(END_OF_STREAM), "end of the stream").to_pybytes()
        self._check(f"end of the stream (offset {at})", END_OF_STREAM, tail)
        self._check("records (footer)", int(directory["rows"].sum(dtype=np.uint64)), records)
        low, high = bounds_of(directory)
        if (low > high).any() or (high[:-1] > low[1:]).any():
            raise self._corrupt(f"directory (offset {end})", "ascending batches", "batches out of order")

    def _read(self, offset: int, length: int, what: str, prefix: bytes = b"") -> pa.Buffer:
        """Return the bytes of `prefix` followed by `length` bytes of the file, read in as many calls as necessary."""
        size = os.fstat(self._file).st_size
        if offset + length > size:  # before allocating for it
            raise self._corrupt(f"{what} (offset {offset})", f"{length} bytes", f"{size - offset} bytes")
        data = np.empty(len(prefix) + length, np.uint8)
        data[: len(prefix)] = np.frombuffer(prefix, np.uint8)
        done = 0
        while done < length:
            got = os.preadv(self._file, [data[len(prefix) + done :].data], offset + done)
            self._tally.read(got)
            if not got:
                raise self._corrupt(f"{what} (offset {offset})", f"{length} bytes", f"{done} bytes")
            done += got
        return pa.py_buffer(data)

    def _refuse(self, head: bytes, size: int) -> None:
        """Raise the error for a file without a valid footer: a truncated file still starts like a chunk file."""
        schema_bytes = 8 + int.from_bytes(head[4:8], "little")
        ours = VERSION_KEY in head or len(head) < max(schema_bytes, 9)
        if ours and head[:4] == CONTINUATION[: len(head)]:
            at = max(size - FOOTER_BYTES, 0)
            raise self._corrupt(f"footer (offset {at})", MAGIC, f"another end of a file of {size} bytes")
        raise ForeignFile(
            f"{self.path}: offset 0: expected a chunk file of indexmill, got {head[:8]!r}; check the path"
        )

    def _check_version(self, version: int) -> None:
        what = f"{self.path}: chunk file version: expected {VERSION}, got {version}"
        if version > VERSION:
            raise TooNew(f"{what}; install the indexmill that wrote it, or {_REMEDY}")
        if version < VERSION:
            raise TooOld(f"{what}; {_REMEDY}")

    def _check(self, where: str, expected: object, got: object) -> None:
        if expected != got:
            raise self._corrupt(where, expected, got)

    def _corrupt(self, where: str, expected: object, got: object) -> CorruptFile:
        error = CorruptFile(f"{self.path}: {where}: expected {expected}, got {got}; {_REMEDY}")
        error.path = str(self.path)
        return error


def joined(keys: NDArray[Any], values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return (key, value) pairs as integers with the same order."""
    pairs: NDArray[np.uint64] = keys.astype(np.uint64) << np.uint64(32) | values
    return pairs


def bounds_of(directory: NDArray[Any]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the first and the last (key, value) of each batch, `joined`."""
    return (
        joined(directory["first_key"], directory["first_value"]),
        joined(directory["last_key"], directory["last_value"]),
    )


def below(keys: NDArray[np.uint32], bound: int) -> int:
    """Return the number of ascending `keys` below `bound`, which may be 2**32."""
    return int(np.searchsorted(keys, np.uint32(bound - 1), side="right")) if bound > 0 else 0


def rows_of(payload: NDArray[Any]) -> NDArray[np.void]:
    """Return a view of the payload with one element for each record, which numpy copies as a whole."""
    return payload.view(f"V{payload.shape[1] * payload.itemsize}").reshape(-1)


def _decoded(keys: pa.Array) -> NDArray[np.uint32]:
    if not isinstance(keys, pa.RunEndEncodedArray):
        decoded: NDArray[np.uint32] = keys.to_numpy()
        return decoded
    ends = keys.run_ends.to_numpy()
    return np.repeat(keys.values.to_numpy(), np.diff(ends, prepend=0))
