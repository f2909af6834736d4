"""ids.imx: the vector id and the user id of each slot (docs/formats/ids.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.pagefile.frame import PAGE_BYTES, corrupt
from indexmill.formats.pagefile.reader import KindFile, PageFile
from indexmill.formats.pagefile.writer import PageFileWriter

KIND = "IDMP"
#: Which ids: those of the user, or the positions in the input.
By = Literal["user", "vector"]
#: Values of field ``id_type``.
NO_IDS, INT64, UINT64, STRING, BINARY = range(5)


def write_ids(path: str | Path, vector_ids: NDArray[np.uint32], user_ids: pa.Array | None) -> None:
    """Write ids.imx.

    Parameters
    ----------
    vector_ids : uint32 array, shape (n,)
        Vector id of each slot, a permutation of [0, n).
    user_ids : pyarrow Array of n int64, uint64, string or binary values, or None
        User id of each slot; None if user ids are the vector ids. The large and view variants of string and binary are
        accepted, too.

    Raises
    ------
    ValueError
        If `vector_ids` is not a permutation, or `user_ids` has nulls, another length or another type.
    """
    n = len(vector_ids)
    if n < 1 or not _is_permutation(vector_ids):
        raise ValueError(f"vector ids: not a permutation of [0, {n})")
    if user_ids is not None and (len(user_ids) != n or user_ids.null_count):
        raise ValueError(f"user ids: {len(user_ids)} values with {user_ids.null_count} nulls for {n} slots")
    id_type = _id_type(user_ids)
    with PageFileWriter(path, KIND, {"n_vertices": n, "id_type": id_type}) as file:
        file.array("vector_ids", vector_ids, "<u4")
        if id_type in (INT64, UINT64):
            with file.section("values") as section:
                section.write(np.ascontiguousarray(user_ids.to_numpy()))  # type: ignore[union-attr]
        elif id_type in (STRING, BINARY):
            offsets, payload = _offsets_and_bytes(user_ids, id_type)
            with file.section("offsets") as section:
                section.write(offsets)
            with file.section("bytes") as section:
                section.write(payload)


def read_ids(path: str | Path, build_id: bytes | None = None) -> tuple[NDArray[np.uint32], pa.Array | None]:
    """Read all of ids.imx, every page checked.

    Parameters
    ----------
    build_id : bytes, optional
        The 16 bytes that the file must have.

    Returns
    -------
    vector_ids : uint32 array, shape (n,), read-only
    user_ids : pyarrow Array or None
        int64, uint64, large_string or large_binary, in slot order.

    Raises
    ------
    FormatError
        If the file is not an intact ids.imx.
    """
    with PageFile(path, KIND, build_id) as file:
        return ids_of(file)


def ids_of(file: PageFile) -> tuple[NDArray[np.uint32], pa.Array | None]:
    """Read all of an opened ids.imx; returns and raises what `read_ids` does."""
    path = file.path
    n = file.field("n_vertices", 1, 2**32 - 1)
    id_type = file.field("id_type", NO_IDS, BINARY)
    vector_ids = file.array("vector_ids", "<u4", n)
    if not _is_permutation(vector_ids):
        raise corrupt(path, "section 'vector_ids'", f"a permutation of [0, {n})", "repeated or larger values")
    if id_type == NO_IDS:
        return vector_ids, None
    if id_type in (INT64, UINT64):
        values = file.array("values", "<i8" if id_type == INT64 else "<u8", n)
        return vector_ids, pa.array(values)
    offsets = file.section("offsets", 8 * (n + 1))
    payload = file.section("bytes")
    _check_offsets(np.frombuffer(offsets, dtype="<u8"), len(payload), path)
    arrow_type = pa.large_string() if id_type == STRING else pa.large_binary()
    user_ids = pa.Array.from_buffers(arrow_type, n, [None, pa.py_buffer(offsets), pa.py_buffer(payload)])
    try:
        user_ids.validate(full=True)
    except pa.ArrowInvalid as error:
        raise corrupt(path, "section 'bytes'", "UTF-8 user ids", error) from error
    return vector_ids, user_ids


class IdBlocks(KindFile):
    """ids.imx in blocks of slots, from front to back.

    Attributes
    ----------
    n : int
        Slots.
    """

    kind: ClassVar[str] = KIND

    def _read_fields(self, file: PageFile) -> None:
        self.n = file.field("n_vertices", 1, 2**32 - 1)
        self._id_type = file.field("id_type", NO_IDS, BINARY)
        file.payload_bytes("vector_ids", 4 * self.n)
        if self._id_type in (INT64, UINT64):
            file.payload_bytes("values", 8 * self.n)
        elif self._id_type in (STRING, BINARY):
            file.payload_bytes("offsets", 8 * (self.n + 1))

    def arrow_type(self, by: By) -> pa.DataType:
        """Return the type of these ids."""
        of_users = (pa.uint32(), pa.int64(), pa.uint64(), pa.large_string(), pa.large_binary())
        return of_users[NO_IDS if by == "vector" else self._id_type]

    def read(self, by: By, rows: int) -> Iterator[tuple[int, pa.Array]]:
        """Yield the first slot and the ids of blocks of `rows` slots, every page checked.

        User ids are the vector ids if the index has no others.

        Raises
        ------
        CorruptFile
            If a page's CRC differs, or bytes are no ids.
        """
        kind = self.arrow_type(by)
        for first in range(0, self.n, rows):
            last = min(first + rows, self.n)
            if pa.types.is_integer(kind):
                size = kind.bit_width // 8
                section = "vector_ids" if kind == pa.uint32() else "values"
                values = self._span(section, size * first, size * last)
                yield first, pa.Array.from_buffers(kind, last - first, [None, pa.py_buffer(values)])
            else:
                yield first, self._texts(kind, first, last)

    def _texts(self, kind: pa.DataType, first: int, last: int) -> pa.Array:
        offsets = np.frombuffer(self._span("offsets", 8 * first, 8 * last + 8), "<u8")
        most = self.file.payload_bytes("bytes")
        if (offsets[1:] < offsets[:-1]).any() or offsets[-1] > most:
            what = f"section 'offsets': slots {first}..{last - 1}"
            raise corrupt(self.path, what, f"ascending offsets up to {most}", "others")
        data = self._span("bytes", int(offsets[0]), int(offsets[-1]))
        buffers = [None, pa.py_buffer(offsets - offsets[0]), pa.py_buffer(data)]
        texts = pa.Array.from_buffers(kind, last - first, buffers)
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid as error:
            raise corrupt(self.path, "section 'bytes'", "UTF-8 user ids", error) from error
        return texts

    def _span(self, section: str, begin: int, end: int) -> memoryview:
        page = begin // PAGE_BYTES
        data = self.file.read_pages(section, page, -(-end // PAGE_BYTES) - page)
        return memoryview(data)[begin - page * PAGE_BYTES : end - page * PAGE_BYTES]


def _id_type(user_ids: pa.Array | None) -> int:
    if user_ids is None:
        return NO_IDS
    kind = user_ids.type
    if pa.types.is_int64(kind):
        return INT64
    if pa.types.is_uint64(kind):
        return UINT64
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return STRING
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return BINARY
    raise ValueError(f"user ids: type {kind} is none of int64, uint64, string and binary")


def _offsets_and_bytes(user_ids: Any, id_type: int) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Return offsets, uint64 from 0 on, and the bytes between them; `user_ids` may be a slice of a longer array."""
    wide = user_ids.cast(pa.large_string() if id_type == STRING else pa.large_binary())
    _, offsets, payload = wide.buffers()
    ends = np.frombuffer(offsets, dtype="<u8", count=len(wide) + 1, offset=8 * wide.offset)
    payload = np.frombuffer(payload if payload is not None else b"", dtype=np.uint8)
    return ends - ends[0], payload[ends[0] : ends[-1]]


def _check_offsets(offsets: NDArray[np.uint64], payload_bytes: int, path: str | Path) -> None:
    if offsets[0] != 0 or offsets[-1] != payload_bytes:
        ends = f"{offsets[0]} and {offsets[-1]}"
        raise corrupt(path, "section 'offsets': ends", f"0 and {payload_bytes}", ends)
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if len(falls):
        slot = int(falls[0])
        raise corrupt(
            path, f"user id of slot {slot}", "an end after its start", f"{offsets[slot : slot + 2]}"
        )


def _is_permutation(vector_ids: NDArray[np.uint32]) -> bool:
    n = len(vector_ids)
    if vector_ids.max() >= n:
        return False
    seen = np.zeros(n, dtype=bool)
    seen[vector_ids] = True
    return bool(seen.all())
