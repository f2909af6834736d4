"""Writer of page files (docs/formats/pagefile.md): streamed sections, sealed with checksums."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.formats.pagefile.frame import (
    BUILD_ID_BYTES,
    BUILD_ID_SPAN,
    CRC_SECTION,
    PAGE_BYTES,
    Header,
    Section,
    checksum,
    f64_to_bits,
    pack_footer,
    pack_header,
    page_checksums,
    pages_for,
    seal_page,
    unpack_header,
)

ReadableBuffer = bytes | bytearray | memoryview | NDArray[Any]

#: Bytes of page checksums kept in memory, those of 16 GiB of pages; more go to a temporary file.
_CHECKSUMS_IN_MEMORY = 16 << 20
#: Bytes of checksums read at a time, a multiple of the page.
_STREAM_BYTES = 4 << 20


class SectionWriter:
    """Writer of one section's payload, in pieces of any size; `PageFileWriter.section` makes it."""

    def __init__(self, file: BinaryIO, checksums: IO[bytes]) -> None:
        self._file = file
        self._checksums = checksums
        self._tail = bytearray()  # the bytes after the last whole page
        self.payload_bytes = 0

    def write(self, data: ReadableBuffer) -> None:
        """Append `data`, any C-contiguous buffer; a numpy array is written as its bytes in memory."""
        view = np.frombuffer(data, dtype=np.uint8).data
        self.payload_bytes += len(view)
        if self._tail:
            missing = min(PAGE_BYTES - len(self._tail), len(view))
            self._tail += view[:missing]
            view = view[missing:]
            if len(self._tail) < PAGE_BYTES:
                return
            self._write_pages(memoryview(bytes(self._tail)))
            self._tail.clear()
        whole = len(view) - len(view) % PAGE_BYTES
        if whole:
            self._write_pages(view[:whole])
        self._tail += view[whole:]

    def _write_pages(self, pages: memoryview) -> None:
        self._file.write(pages)
        self._checksums.write(page_checksums(pages).tobytes())

    def _pad(self) -> None:
        if self._tail:
            self._write_pages(memoryview(bytes(self._tail).ljust(PAGE_BYTES, b"\0")))
            self._tail.clear()


class PageFileWriter:
    """Writer of one page file: sections are streamed in order, at most a page is buffered.

    Use it as a context. When the block succeeds, checksums, footer and header are written, and the file is synced and
    renamed; if it raises, no file remains.

    Parameters
    ----------
    path : str or Path
    kind : str
        Four ASCII capitals.
    fields : mapping of str to int or float
        Integers below 2^64; floats are stored as f64 bits.
    build_id : bytes, optional
        16 bytes; zero until `stamp_build_id` where it is not known yet.
    """

    def __init__(
        self,
        path: str | Path,
        kind: str,
        fields: Mapping[str, int | float],
        build_id: bytes = bytes(BUILD_ID_BYTES),
    ) -> None:
        self.path = Path(path)
        self._kind, self._build_id = kind, build_id
        self._fields = {
            name: f64_to_bits(v) if isinstance(v, float) else int(v) for name, v in fields.items()
        }
        self._sections: list[Section] = []
        self._next_page = 1

    def __enter__(self) -> PageFileWriter:
        with ExitStack() as stack:
            self._file = stack.enter_context(atomic_write(self.path))
            self._checksums = stack.enter_context(
                tempfile.SpooledTemporaryFile(max_size=_CHECKSUMS_IN_MEMORY, dir=str(self.path.parent))
            )
            self._file.write(bytes(PAGE_BYTES))  # place of the header, which is written last
            stack.push(self._finish_unless_failed)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @contextmanager
    def section(self, name: str) -> Iterator[SectionWriter]:
        """Open the next section, whose payload is written inside the block."""
        writer = SectionWriter(self._file, self._checksums)
        yield writer
        writer._pad()
        self._add_section(name, writer.payload_bytes)

    def array(self, name: str, values: NDArray[Any], dtype: DTypeLike) -> None:
        """Write `values`, converted to `dtype`, as the next section."""
        with self.section(name) as section:
            section.write(np.ascontiguousarray(values, dtype))

    def state(self, name: str, value: int) -> None:
        """Give a field the value that was not known before the sections were written."""
        self._fields[name] = value

    def _add_section(self, name: str, payload_bytes: int) -> None:
        section = Section(name, self._next_page, pages_for(payload_bytes), payload_bytes)
        self._sections.append(section)
        self._next_page += section.pages

    def _finish_unless_failed(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        payload_bytes = self._checksums.tell()
        self._checksums.seek(0)
        section_checksum = 0
        while block := self._checksums.read(_STREAM_BYTES):
            padded = block.ljust(pages_for(len(block)) * PAGE_BYTES, b"\0")
            section_checksum = checksum(padded, section_checksum)
            self._file.write(padded)
        self._add_section(CRC_SECTION, payload_bytes)
        file_bytes = (self._next_page + 1) * PAGE_BYTES
        self._file.write(pack_footer(file_bytes, section_checksum))
        self._file.seek(0)
        header = Header(self._kind, self._build_id, file_bytes, tuple(self._sections), self._fields)
        self._file.write(pack_header(header))


def stamp_build_id(path: str | Path, build_id: bytes) -> None:
    """Write `build_id` (16 bytes) into a page file's header and update the header's CRC, in place, synced.

    Repeating this changes nothing. It happens before the manifest exists, so no reader has opened the file.

    Raises
    ------
    ForeignFile, TooNew, TooOld, CorruptFile
        If `path` is not an intact page file of this version.
    """
    if len(build_id) != BUILD_ID_BYTES:
        raise ValueError(f"a build id has {BUILD_ID_BYTES} bytes, not {len(build_id)}")
    with open(path, "r+b") as file:
        page = file.read(PAGE_BYTES)
        unpack_header(page, path, os.fstat(file.fileno()).st_size, None)
        first, last = BUILD_ID_SPAN
        file.seek(0)
        file.write(seal_page(page[:first] + build_id + page[last:]))
        file.flush()
        os.fsync(file.fileno())
