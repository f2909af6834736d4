"""Encoding and decoding of a page file's header, footer and checksums (docs/formats/pagefile.md)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import CorruptFile, ForeignFile, TooNew, TooOld

#: Unit of reading, of addressing and of checksums.
PAGE_BYTES = 4096
#: Format version (major, minor), written at offset 12 of every page file and as ``format`` in most manifests. A reader
#: refuses another major version (`TooNew`, `TooOld`); a higher minor only adds sections and fields, which it ignores.
VERSION = (1, 3)
#: Oldest major version that is read.
OLDEST_MAJOR = 1

BUILD_ID_BYTES = 16
#: Bytes of the header not covered by the build id, because they depend on it: the id itself and the header's CRC.
BUILD_ID_SPAN = (16, 32)
HEADER_CRC_SPAN = (PAGE_BYTES - 4, PAGE_BYTES)

#: Most dimensions of a stored vector: those of an input vector and, under inner product, one more.
MAX_STORED_DIM = 65536 + 1

MAX_SECTIONS = 16
MAX_FIELDS = 100
#: Name of the last section, with one CRC32C for each page between the header and this section.
CRC_SECTION = "crc"

_MAGIC = b"\x89IMILL\r\n"
_FOOTER_MAGIC = b"IMILLEND"
_HEADER = struct.Struct("<8s4sHH16sIHHQ16x")
_SECTION = struct.Struct("<16sQQQ")
_FIELD = struct.Struct("<16sQ")
_FOOTER = struct.Struct("<8sQI")
_CRC = struct.Struct("<I")


@dataclass(frozen=True)
class Section:
    """One entry of the section table; `first_page` counts from the start of the file."""

    name: str
    first_page: int
    pages: int
    payload_bytes: int


@dataclass(frozen=True)
class Header:
    """Content of a header page.

    Attributes
    ----------
    kind : str
        Four ASCII capitals.
    build_id : bytes
        16 bytes; zero until the index is sealed.
    file_bytes : int
    sections : tuple of Section
        In file order; the last one is ``crc``.
    fields : mapping of str to int
        u64 values; a float field holds its f64 bits, see `f64_from_bits`.
    """

    kind: str
    build_id: bytes
    file_bytes: int
    sections: tuple[Section, ...]
    fields: Mapping[str, int]


def pages_for(payload_bytes: int) -> int:
    """Return the number of pages of `payload_bytes` bytes."""
    return -(-payload_bytes // PAGE_BYTES)


def f64_to_bits(value: float) -> int:
    """Return the IEEE 754 bits of `value`, as a float field stores them."""
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def f64_from_bits(bits: int) -> float:
    """Return the float whose IEEE 754 bits are `bits`."""
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def checksum(data: bytes, start: int = 0) -> int:
    """Return the CRC32C of `data`, continued from the checksum `start` of the data before it."""
    return int(google_crc32c.extend(start, data))


def page_checksums(pages: memoryview) -> NDArray[np.uint32]:
    """Return the CRC32C of each page; `pages` is a view of bytes whose length is a multiple of 4096."""
    value = google_crc32c.value
    parts = (value(pages[at : at + PAGE_BYTES].tobytes()) for at in range(0, len(pages), PAGE_BYTES))
    return np.fromiter(parts, dtype="<u4", count=len(pages) // PAGE_BYTES)


def block_checksums(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the CRC32C of each row of `rows`, shape (m, bytes): little-endian uint32 (m,)."""
    return np.fromiter((google_crc32c.value(row.tobytes()) for row in rows), dtype="<u4", count=len(rows))


def corrupt(path: str | Path, where: str, expected: object, got: object) -> CorruptFile:
    """Return the error for bytes of `path` that differ from those written."""
    what = f"{path}: {where}: expected {expected}, got {got}"
    error = CorruptFile(f"{what}; restore the file from a copy or build the index again")
    error.path = str(path)
    return error


def check_agreement(directory: Path, source: str, fields: Iterable[tuple[str, str, object, object]]) -> None:
    """Check fields of files of one index, each given as file name, field, value there, and value in file `source`.

    Raises
    ------
    CorruptFile
        If two files disagree.
    """
    for name, field, got, want in fields:
        if got != want:
            raise corrupt(directory / name, f"field {field!r}", f"{want} as in {source}", got)


def pack_header(header: Header) -> bytes:
    """Return the header page, including its CRC.

    Raises
    ------
    ValueError
        If the kind, a name, a value or a count violates the format.
    """
    if not re.fullmatch("[A-Z]{4}", header.kind):
        raise ValueError(f"kind must be four ASCII capitals, not {header.kind!r}")
    names = [section.name for section in header.sections]
    if len(names) > MAX_SECTIONS or len(header.fields) > MAX_FIELDS or len(set(names)) != len(names):
        raise ValueError(f"a header holds {MAX_SECTIONS} sections of different names and {MAX_FIELDS} fields")
    counts = (PAGE_BYTES, len(names), len(header.fields))
    parts = [
        _HEADER.pack(_MAGIC, header.kind.encode(), *VERSION, header.build_id, *counts, header.file_bytes),
        *(_SECTION.pack(_name(s.name), s.first_page, s.pages, s.payload_bytes) for s in header.sections),
        *(_FIELD.pack(_name(name), value) for name, value in header.fields.items()),
    ]
    return seal_page(b"".join(parts))


def unpack_header(page: bytes, path: str | Path, file_bytes: int, kind: str | None) -> Header:
    """Check a header page in the order of the specification, and return its content.

    Parameters
    ----------
    page : bytes
        The first 4096 bytes of the file, or fewer if it is shorter.
    path : str or Path
        Named in errors.
    file_bytes : int
        Actual size of the file.
    kind : str or None
        The required kind; None accepts any.

    Raises
    ------
    ForeignFile
        If the file is too short, or has another magic.
    TooNew, TooOld
        If this version does not read the major version.
    CorruptFile
        If anything else violates the specification.
    """
    if file_bytes < 2 * PAGE_BYTES or len(page) != PAGE_BYTES:
        raise ForeignFile(
            f"{path}: expected a page file of at least {2 * PAGE_BYTES} bytes, got {file_bytes} bytes; "
            "check the path, or restore the file if its copy was cut short"
        )
    magic, found_kind, major, minor, build_id, page_bytes, *counts, stated = _HEADER.unpack_from(page)
    n_sections, n_fields = counts
    if magic != _MAGIC:
        raise ForeignFile(
            f"{path}: offset 0: expected the magic {_MAGIC!r}, got {magic!r}; "
            "not a page file of indexmill, check the path"
        )
    check_page_checksum(page, path, "header page (offset 0)")
    check_version(major, minor, path)
    name = found_kind.decode("latin-1")
    if kind is not None and name != kind:
        raise corrupt(path, "kind (offset 8)", kind, name)
    if page_bytes != PAGE_BYTES:
        raise corrupt(path, "page bytes (offset 32)", PAGE_BYTES, page_bytes)
    if not 1 <= n_sections <= MAX_SECTIONS:
        raise corrupt(path, "number of sections (offset 36)", f"1..{MAX_SECTIONS}", n_sections)
    if n_fields > MAX_FIELDS:
        raise corrupt(path, "number of fields (offset 38)", f"0..{MAX_FIELDS}", n_fields)
    if stated != file_bytes:
        raise corrupt(path, "size of the file (offset 40)", f"{stated} bytes", f"{file_bytes} bytes")
    sections, fields = _unpack_tables(page, n_sections, n_fields, path)
    _check_sections(sections, path, file_bytes)
    return Header(name, build_id, file_bytes, sections, fields)


def format_version(page: bytes) -> tuple[int, int]:
    """Return major and minor version that a header page states."""
    _, _, major, minor, *_ = _HEADER.unpack_from(page)
    return major, minor


def _unpack_tables(
    page: bytes, n_sections: int, n_fields: int, path: str | Path
) -> tuple[tuple[Section, ...], dict[str, int]]:
    """Return the sections in file order, and the fields by their names."""
    fields_at = _HEADER.size + n_sections * _SECTION.size
    sections = tuple(
        Section(_text(raw, path), *numbers)
        for raw, *numbers in _SECTION.iter_unpack(page[_HEADER.size : fields_at])
    )
    fields = [
        (_text(raw, path), value)
        for raw, value in _FIELD.iter_unpack(page[fields_at : fields_at + n_fields * _FIELD.size])
    ]
    if len(dict(fields)) != n_fields:
        raise corrupt(path, "field table", "different names", [name for name, _ in fields])
    return sections, dict(fields)


def check_version(major: int, minor: int, path: str | Path, newest: int = VERSION[0]) -> None:
    """Raise `TooNew` or `TooOld` unless major version `major` is supported, which ends with `newest`."""
    known = f"{OLDEST_MAJOR}" if newest == OLDEST_MAJOR else f"{OLDEST_MAJOR} to {newest}"
    what = f"{path}: format version: expected major {known}, got {major}.{minor}"
    if major > newest:
        raise TooNew(f"{what}; install a newer indexmill to read it")
    if major < OLDEST_MAJOR:
        raise TooOld(f"{what}; build the index again")


def pack_footer(file_bytes: int, crc_section_checksum: int) -> bytes:
    """Return the footer page, including its CRC."""
    return seal_page(_FOOTER.pack(_FOOTER_MAGIC, file_bytes, crc_section_checksum))


def unpack_footer(page: bytes, path: str | Path, file_bytes: int) -> int:
    """Check a footer page, and return the CRC32C of the pages of section ``crc``.

    Raises
    ------
    CorruptFile
        If the magic, the size or the page's own CRC is wrong.
    """
    where = f"footer page (offset {file_bytes - PAGE_BYTES})"
    magic, stated, crc_section_checksum = _FOOTER.unpack_from(page)
    if magic != _FOOTER_MAGIC:
        raise corrupt(path, f"{where}: magic", _FOOTER_MAGIC, magic)
    check_page_checksum(page, path, where)
    if stated != file_bytes:
        raise corrupt(path, f"{where}: size of the file", f"{stated} bytes", f"{file_bytes} bytes")
    return int(crc_section_checksum)


def check_page_checksum(page: bytes, path: str | Path, where: str) -> None:
    """Raise `CorruptFile` unless the last four bytes of `page` are the CRC32C of the others."""
    (stored,) = _CRC.unpack_from(page, PAGE_BYTES - _CRC.size)
    computed = checksum(page[: -_CRC.size])
    if stored != computed:
        raise corrupt(path, f"{where}: CRC32C", f"{stored:08x}", f"{computed:08x}")


def _check_sections(sections: tuple[Section, ...], path: str | Path, file_bytes: int) -> None:
    names = [section.name for section in sections]
    if names[-1] != CRC_SECTION or len(set(names)) != len(names):
        raise corrupt(path, "section table", f"different names, the last one {CRC_SECTION!r}", names)
    at = 1
    for section in sections:
        if section.first_page != at:
            raise corrupt(path, f"section {section.name!r}: first page", at, section.first_page)
        pages = pages_for(section.payload_bytes)
        if section.pages != pages:
            raise corrupt(path, f"section {section.name!r}: pages", pages, section.pages)
        at += section.pages
    if (at + 1) * PAGE_BYTES != file_bytes:
        raise corrupt(path, "end of the last section", f"page {file_bytes // PAGE_BYTES - 1}", f"page {at}")
    crc = sections[-1]
    if crc.payload_bytes != 4 * (crc.first_page - 1):
        raise corrupt(path, "section 'crc': payload bytes", 4 * (crc.first_page - 1), crc.payload_bytes)


def seal_page(start: bytes) -> bytes:
    """Return the page that starts with `start`, padded with zeros, and ends with the CRC32C of the rest."""
    page = start.ljust(PAGE_BYTES, b"\0")[: -_CRC.size]
    return page + _CRC.pack(checksum(page))


def _name(text: str) -> bytes:
    raw = text.encode("ascii")
    if not 1 <= len(raw) <= 16 or b"\0" in raw:
        raise ValueError(f"a name has 1 to 16 ASCII characters, not {text!r}")
    return raw


def _text(raw: bytes, path: str | Path) -> str:
    name = raw.rstrip(b"\0")
    if not name or b"\0" in name or not name.isascii():
        raise corrupt(path, "name in the header page", "1 to 16 ASCII characters, zero padded", raw)
    return name.decode("ascii")
