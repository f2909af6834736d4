"""Manifests as checked text: a JSON object whose last key is the digest of all bytes before it.

What opening an index needs of manifests stands here, since importing `formats.index.manifest` loads every kind of file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ForeignFile, FormatError
from indexmill.formats.index.names import MANIFEST_NAME
from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.formats.pagefile.frame import corrupt

#: Name of the format in every manifest.
FORMAT_NAME = "indexmill"
#: What the manifest of a set of indexes has as its kind (`formats.index.setmanifest`).
SET_KIND = "set"
#: A manifest holds parameters and a few file entries; a larger file is not one. The native reader has the same limit.
MOST_BYTES = 64 << 20
#: End of every manifest: the digest of all bytes before it.
_TAIL = re.compile(rb'  "digest": "([0-9a-f]{64})"\n}\n')
_TAIL_BYTES = 81


def is_set(directory: str | Path) -> bool:
    """Tell whether a directory is a set of indexes; one whose manifest is damaged may still be."""
    path = Path(directory) / MANIFEST_NAME
    try:
        raw = manifest_bytes(path)
    except (OSError, ForeignFile):
        return False
    try:
        return bool(_parsed(path, raw).get("kind") == SET_KIND)
    except FormatError:
        return f'"kind": "{SET_KIND}"'.encode() in raw


def write_checked_json(path: str | Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object atomically, with the digest of its bytes as its last key.

    Raises
    ------
    ValueError
        If a value is NaN or infinite, which JSON cannot represent.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    body = (text.removesuffix("\n}") + ",\n").encode()
    with atomic_write(path) as file:
        file.write(body)
        file.write(f'  "digest": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode())


def manifest_bytes(path: Path) -> bytes:
    """Read a file that may be a manifest, without waiting for the writer of a FIFO.

    Raises
    ------
    ForeignFile
        If it is no regular file, or larger than `MOST_BYTES`.
    OSError
        If it cannot be read.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise foreign(path, "no regular file")
        if found.st_size > MOST_BYTES:
            raise foreign(path, f"more than {MOST_BYTES >> 20} MiB")
        return file.read(found.st_size)


def checked_json(path: Path) -> dict[str, Any]:
    """Read what `write_checked_json` wrote.

    Raises
    ------
    ForeignFile
        As `manifest_bytes`, or if it is another text.
    CorruptFile
        If the digest differs, or it is no JSON object.
    """
    return _parsed(path, manifest_bytes(path))


def _parsed(path: Path, raw: bytes) -> dict[str, Any]:
    tail = _TAIL.fullmatch(raw[-_TAIL_BYTES:])
    if tail is None:
        if b'"indexmill"' not in raw:
            raise foreign(path)
        at = max(0, len(raw) - _TAIL_BYTES)
        raise corrupt(path, f"offset {at}", "the digest as the last key", repr(raw[-_TAIL_BYTES:]))
    digest = hashlib.sha256(raw[:-_TAIL_BYTES]).hexdigest()
    if digest != tail[1].decode():
        raise corrupt(path, "digest", tail[1].decode(), digest)
    try:
        value = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise corrupt(path, "text", "UTF-8 JSON", error) from error
    if not isinstance(value, dict):
        raise corrupt(path, "text", "a JSON object", type(value).__name__)
    return value


def foreign(path: Path, got: str = "another text") -> ForeignFile:
    """Return the error of a file that is no manifest of ours."""
    return ForeignFile(f"{path}: expected a manifest of indexmill, got {got}; check the path")
