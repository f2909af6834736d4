"""Damage with valid checksums, as a stranger or a bug in a writer could put into an index."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c

PAGE = 4096


def patch_page_file(path: Path, changes: dict[int, bytes]) -> None:
    """Overwrite bytes at offsets of a page file, then renew every checksum by the header's section table."""
    data = bytearray(path.read_bytes())
    (n_sections,) = struct.unpack_from("<H", data, 36)
    _, crc_page, crc_pages, _ = struct.unpack_from("<16sQQQ", data, 64 + 40 * (n_sections - 1))
    for offset, new in changes.items():
        data[offset : offset + len(new)] = new
    for page in range(1, crc_page):
        struct.pack_into(
            "<I", data, crc_page * PAGE + 4 * (page - 1), _crc(data[page * PAGE : (page + 1) * PAGE])
        )
    footer = len(data) - PAGE
    struct.pack_into("<I", data, footer + 16, _crc(data[crc_page * PAGE : (crc_page + crc_pages) * PAGE]))
    for page_at in (0, footer):
        struct.pack_into("<I", data, page_at + 4092, _crc(data[page_at : page_at + 4092]))
    path.write_bytes(data)


def section_offset(path: Path, name: str) -> int:
    """Offset of a section's payload in the file."""
    data = path.read_bytes()
    (n_sections,) = struct.unpack_from("<H", data, 36)
    for i in range(n_sections):
        raw, first_page, _, _ = struct.unpack_from("<16sQQQ", data, 64 + 40 * i)
        if raw.rstrip(b"\0").decode() == name:
            return int(first_page) * PAGE
    raise KeyError(name)


def field_offset(path: Path, name: str) -> int:
    """Offset of a field's value in the header."""
    data = path.read_bytes()
    n_sections, n_fields = struct.unpack_from("<HH", data, 36)
    for i in range(n_fields):
        at = 64 + 40 * n_sections + 24 * i
        if data[at : at + 16].rstrip(b"\0").decode() == name:
            return int(at) + 16
    raise KeyError(name)


def patch_manifest(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Apply `change` to the parsed manifest and write it back with a digest that fits."""
    path = directory / "manifest.json"
    value = json.loads(path.read_text())
    del value["digest"]
    change(value)
    body = (json.dumps(value, indent=2).removesuffix("\n}") + ",\n").encode()
    path.write_bytes(body + f'  "digest": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode())


def _crc(data: bytes | bytearray) -> int:
    return int(google_crc32c.value(bytes(data)))
