"""Reader of page files, the frame of every ``.imx`` file (docs/formats/pagefile.md).

Every byte of a file is covered by a CRC32C: the header's own, the footer's own, one for each page in section ``crc``,
and the footer's over that section. `pagefile.writer` writes page files.
"""

from __future__ import annotations

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import CorruptFile
from indexmill.formats.pagefile.closing import Closing
from indexmill.formats.pagefile.frame import (
    BUILD_ID_SPAN,
    CRC_SECTION,
    HEADER_CRC_SPAN,
    PAGE_BYTES,
    Section,
    checksum,
    corrupt,
    page_checksums,
    pages_for,
    unpack_footer,
    unpack_header,
)

#: Bytes read at a time when a whole file is streamed, a multiple of the page.
_STREAM_BYTES = 4 << 20


class PageFile(Closing):
    """An opened page file; header and footer are checked when it is opened, every page when it is read.

    Parameters
    ----------
    path : str or Path
    kind : str or None
        The kind that the file must have; None accepts any.
    build_id : bytes, optional
        The 16 bytes that the file must have; not checked by default.

    Raises
    ------
    ForeignFile, TooNew, TooOld, CorruptFile
        In the order of the specification.
    """

    def __init__(self, path: str | Path, kind: str | None, build_id: bytes | None = None) -> None:
        self.path = Path(path)
        with ExitStack() as stack:
            self._file = stack.enter_context(open(self.path, "rb"))
            file_bytes = os.fstat(self._file.fileno()).st_size
            page = os.pread(self._file.fileno(), PAGE_BYTES, 0)
            self.header = unpack_header(page, self.path, file_bytes, kind)
            footer = self._read(file_bytes - PAGE_BYTES, PAGE_BYTES)
            self._crc_section_checksum = unpack_footer(footer, self.path, file_bytes)
            if build_id is not None and self.header.build_id != build_id:
                raise CorruptFile(
                    f"{self.path}: build id (offset 16): expected {build_id.hex()} as in the manifest, "
                    f"got {self.header.build_id.hex()}; the file is from another build, copy the whole index"
                )
            self._stack = stack.pop_all()
        self._sections = {section.name: section for section in self.header.sections}

    @property
    def fields(self) -> Mapping[str, int]:
        """Field values by name; a float field holds its f64 bits."""
        return self.header.fields

    def field(self, name: str, least: int = 0, greatest: int = 2**64 - 1) -> int:
        """Return field `name`; raises `CorruptFile` if it is missing or outside [least, greatest]."""
        value = self.fields.get(name)
        if value is None or not least <= value <= greatest:
            got = "nothing" if value is None else value
            raise corrupt(self.path, f"field {name!r}", f"{least}..{greatest}", got)
        return value

    def has_section(self, name: str) -> bool:
        """Return whether the file has a section `name`."""
        return name in self._sections

    def payload_bytes(self, name: str, expected: int | None = None) -> int:
        """Return the payload bytes of section `name`; raises `CorruptFile` if it is missing or not as `expected`."""
        if name not in self._sections:
            raise corrupt(self.path, "section table", f"a section {name!r}", sorted(self._sections))
        got = self._sections[name].payload_bytes
        if expected is not None and got != expected:
            raise corrupt(self.path, f"section {name!r}: payload", f"{expected} bytes", f"{got} bytes")
        return got

    def section_entry(self, name: str) -> Section:
        """Return the table entry of section `name`; raises `CorruptFile` if it is missing."""
        self.payload_bytes(name)
        return self._sections[name]

    def stored_checksums(self, first: int, count: int) -> NDArray[np.uint32]:
        """Return the CRC32Cs in section ``crc`` of `count` pages of the file, from page `first` on."""
        crc_at = self._sections[CRC_SECTION].first_page * PAGE_BYTES
        return np.frombuffer(self._read(crc_at + 4 * (first - 1), 4 * count), dtype="<u4")

    def section(self, name: str, expected: int | None = None) -> bytes:
        """Return the whole payload of section `name`, every page checked.

        Parameters
        ----------
        expected : int, optional
            Required bytes, checked before anything is read.

        Raises
        ------
        CorruptFile
            If it is missing or has another size, or a page's CRC differs.
        """
        payload = self.payload_bytes(name, expected)
        return self.read_pages(name, 0, pages_for(payload))[:payload]

    def array(self, name: str, dtype: str, *shape: int, finite: bool = False) -> NDArray[Any]:
        """Return section `name` as an array, read-only, every page checked.

        Raises
        ------
        CorruptFile
            If it is missing or has another size, a page's CRC differs, or a number is not `finite`.
        """
        kind = np.dtype(dtype)
        found = np.frombuffer(self.section(name, math.prod(shape) * kind.itemsize), kind).reshape(shape)
        if finite and not np.isfinite(found).all():
            raise corrupt(self.path, f"section {name!r}", "finite numbers", "NaN or infinity")
        return found

    def read_pages(self, section: str, first: int, count: int) -> bytes:
        """Return `count` pages of `section` from its page `first` on, padding included, each checked.

        Raises
        ------
        IndexError
            If the section has fewer pages.
        CorruptFile
            If a page's CRC differs; the message has the page's number in the file.
        """
        self.payload_bytes(section)
        entry = self._sections[section]
        if first < 0 or count < 0 or first + count > entry.pages:
            raise IndexError(f"section {section!r} has {entry.pages} pages, not {first}..{first + count}")
        return self._checked_pages(entry.first_page + first, count)

    def take_pages(self, section: str, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return pages of `section` by number, in any order: uint8 (len(numbers), 4096), each checked.

        Memory: twice the result, and 4 bytes for each page between the least and the greatest number.

        Raises
        ------
        IndexError
            If the section has no such page.
        CorruptFile
            If a page's CRC differs; the message has the page's number in the file.
        """
        entry = self.section_entry(section)
        if not len(numbers):
            return np.empty((0, PAGE_BYTES), np.uint8)
        least, greatest = int(numbers.min()), int(numbers.max())
        if least < 0 or greatest >= entry.pages:
            raise IndexError(f"section {section!r} has {entry.pages} pages, not {least}..{greatest}")
        shape = (self.header.file_bytes // PAGE_BYTES, PAGE_BYTES)
        data = np.memmap(self.path, np.uint8, "r", shape=shape)[entry.first_page + numbers]
        stored = self.stored_checksums(entry.first_page + least, greatest - least + 1)[numbers - least]
        self._compare(entry.first_page + numbers, stored, page_checksums(data.reshape(-1).data))
        return np.asarray(data)

    def verify(self) -> None:
        """Read the whole file and check every page. Memory: a few MiB.

        Raises
        ------
        CorruptFile
            At the first page whose bytes differ from those written.
        """
        crc = self._sections[CRC_SECTION]
        at, end = crc.first_page * PAGE_BYTES, self.header.file_bytes - PAGE_BYTES
        computed = 0
        for offset in range(at, end, _STREAM_BYTES):
            computed = checksum(self._read(offset, min(_STREAM_BYTES, end - offset)), computed)
        if computed != self._crc_section_checksum:
            expected = f"{self._crc_section_checksum:08x}"
            raise corrupt(self.path, f"section 'crc' (offset {at}): CRC32C", expected, f"{computed:08x}")
        step = _STREAM_BYTES // PAGE_BYTES
        for page in range(1, crc.first_page, step):
            self._checked_pages(page, min(step, crc.first_page - page))

    def _checked_pages(self, first: int, count: int) -> bytes:
        """Return pages of the file by number, none of section ``crc``, each checked."""
        data = self._read(first * PAGE_BYTES, count * PAGE_BYTES)
        stored = self.stored_checksums(first, count)
        computed = page_checksums(memoryview(data))
        self._compare(np.arange(first, first + count), stored, computed)
        return data

    def _compare(
        self, pages: NDArray[np.int64], stored: NDArray[np.uint32], computed: NDArray[np.uint32]
    ) -> None:
        """Raise `CorruptFile` for the first of these pages of the file whose CRC differs."""
        bad = np.flatnonzero(stored != computed)
        if len(bad):
            page = int(pages[bad[0]])
            where = f"page {page} (offset {page * PAGE_BYTES}): CRC32C"
            raise corrupt(self.path, where, f"{stored[bad[0]]:08x}", f"{computed[bad[0]]:08x}")

    def _read(self, offset: int, count: int) -> bytes:
        parts = []
        while count:
            part = os.pread(self._file.fileno(), count, offset)  # one call returns at most 2 GiB
            if not part:
                raise corrupt(self.path, f"offset {offset}", f"{count} more bytes", "the end of the file")
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class KindFile(Closing, ABC):
    """A page file of one kind, opened: a subclass checks the fields and reads the sections of its kind.

    Attributes
    ----------
    path : Path
    file : PageFile
        The frame around the sections.

    Raises
    ------
    FormatError
        If it is not an intact file of that kind.
    """

    #: Kind that the file must have.
    kind: ClassVar[str]

    def __init__(self, path: str | Path, build_id: bytes | None = None) -> None:
        self.path = Path(path)
        with ExitStack() as stack:
            self.file = stack.enter_context(PageFile(path, self.kind, build_id))
            self._read_fields(self.file)
            self._stack = stack.pop_all()

    @abstractmethod
    def _read_fields(self, file: PageFile) -> None:
        """Set the attributes that the header says, each checked."""


def content_digest(path: str | Path) -> str:
    """Return the SHA-256 (hex) of a file, with the build id and header CRC of ``.imx`` files as zero (manifest.md)."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        if Path(path).suffix == ".imx":
            page = bytearray(file.read(PAGE_BYTES))
            for first, last in (BUILD_ID_SPAN, HEADER_CRC_SPAN):
                page[first:last] = bytes(len(page[first:last]))
            digest.update(page)
        while block := file.read(_STREAM_BYTES):
            digest.update(block)
    return digest.hexdigest()
